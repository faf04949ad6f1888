//! Processes that share a journal in PostgreSQL.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use pybench_run::shared::{Member, Retried, Round, WorkEnd, WorkerSession, retry_failed};
use pybench_run::{
    BudgetCap, CallState, Executor, ExecutorOptions, Failure, FailureKind, Interrupt, Journal,
    Progress, Reservation, RunFolder, SharedExecutor, Stage, UnitState, WhenChanged,
};
use pybench_testing::named_stage::NamedStage;
use pybench_testing::postgres;
use serde_json::{Value, json};

use crate::journal::Place;
use crate::places::PostgresPlace;

const TEN: Reservation = Reservation {
    micro_usd: 10,
    tokens: 10,
};

#[test]
fn what_a_live_worker_has_survives_the_coordinator() {
    let Some(place) = PostgresPlace::new() else {
        return;
    };
    let coordinator = place.open();
    coordinator.enqueue("s", ["alive", "dead"]).unwrap();
    let (alive, dead) = (place.join(), place.join());
    alive.beat("{\"name\":\"alive\"}", 60).unwrap();
    for (worker, item) in [(&alive, "alive"), (&dead, "dead")] {
        assert!(worker.lease("s", item, 100, 1_000_000_000_000).unwrap());
        worker
            .reserve(&format!("{item}/0"), TEN, BudgetCap::default())
            .unwrap();
    }
    assert!(coordinator.has_calls_elsewhere().unwrap());
    drop(coordinator);
    let coordinator = place.open();
    let state = |id: &str| coordinator.call(id).unwrap().unwrap().state;
    assert_eq!(state("alive/0"), CallState::InFlight);
    assert_eq!(state("dead/0"), CallState::Uncertain);
    assert!(!coordinator.lease("s", "alive", 200, 10).unwrap());
    assert!(coordinator.lease("s", "dead", 200, 10).unwrap());
    alive.complete("s", "alive", &json!(1)).unwrap();
    // A worker that leaves gives back what it has.
    alive.leave().unwrap();
    assert_eq!(state("alive/0"), CallState::Uncertain);
    assert!(!coordinator.has_calls_elsewhere().unwrap());
}

#[test]
fn what_a_worker_that_leaves_had_comes_next() {
    let Some(place) = PostgresPlace::new() else {
        return;
    };
    let (coordinator, worker) = (place.open(), place.join());
    let items = ["a", "b", "c"];
    coordinator.enqueue("s", items).unwrap();
    coordinator
        .offer("1", "s", &items.map(str::to_owned))
        .unwrap();
    let lease = |journal: &Journal| {
        let offer = journal.lease_offer("1", "s", 100_000, 60).unwrap();
        offer.map(|offer| (offer.item, offer.lost))
    };
    for item in ["a", "b"] {
        assert_eq!(lease(&worker), Some((item.to_owned(), 0)));
    }
    worker.leave().unwrap();
    for item in items {
        assert_eq!(lease(&coordinator), Some((item.to_owned(), 0)));
    }
    assert_eq!(lease(&coordinator), None);
}

#[test]
fn a_journal_of_an_older_version_gets_the_indexes_of_offers() {
    let Some(place) = PostgresPlace::new() else {
        return;
    };
    drop(place.open());
    let schema = &place.schema;
    postgres::sql(&format!(
        "DROP INDEX {schema}.offer_free, {schema}.offer_due;
         CREATE INDEX offer_by_round ON {schema}.offer (round, position)"
    ));
    drop(place.open());
    let indexes = postgres::sql(&format!(
        "SELECT string_agg(indexname, ' ' ORDER BY indexname) FROM pg_indexes
         WHERE schemaname = '{schema}' AND tablename = 'offer'"
    ));
    assert_eq!(indexes, "offer_due offer_free offer_pkey");
}

#[test]
fn units_are_added_without_a_look_at_all_others() {
    let Some(place) = PostgresPlace::new() else {
        return;
    };
    let (journal, schema) = (place.open(), &place.schema);
    let items: Vec<String> = (0..6_000).map(|number| format!("item-{number}")).collect();
    journal.enqueue("s", items).unwrap();
    let plan = postgres::sql(&format!(
        "EXPLAIN SELECT COALESCE(MAX(position) + 1, 0) FROM {schema}.unit WHERE stage = 's'"
    ));
    assert!(plan.contains("unit_by_position"), "{plan}");
}

#[test]
fn offers_that_have_ended_are_vacuumed() {
    let Some(place) = PostgresPlace::new() else {
        return;
    };
    let (journal, schema) = (place.open(), &place.schema);
    let items: Vec<String> = (0..2_000).map(|number| format!("item-{number}")).collect();
    journal.enqueue("s", items.clone()).unwrap();
    let count = format!(
        "SELECT vacuum_count FROM pg_stat_all_tables WHERE schemaname = '{schema}' AND relname = 'offer'"
    );
    for (ended, vacuumed) in [(1, "0"), (1_999, "1")] {
        journal.offer("1", "s", &items).unwrap();
        postgres::sql(&format!(
            "UPDATE {schema}.unit SET state = 'done' WHERE item IN
             (SELECT item FROM {schema}.unit WHERE state = 'pending' LIMIT {ended})"
        ));
        assert_eq!(journal.sweep_offers("1").unwrap().done, ended);
        assert_eq!(postgres::sql(&count), vacuumed);
    }
}

#[test]
fn a_worker_that_is_silent_is_removed() {
    let Some(place) = PostgresPlace::new() else {
        return;
    };
    let (coordinator, worker) = (place.open(), place.join());
    worker.beat("{\"name\":\"w\"}", 1).unwrap();
    worker.reserve("w/0", TEN, BudgetCap::default()).unwrap();
    coordinator.remove_dead_members().unwrap();
    assert_eq!(coordinator.members().unwrap().len(), 1);
    assert!(coordinator.has_calls_elsewhere().unwrap());
    std::thread::sleep(Duration::from_millis(2_500));
    assert_eq!(coordinator.members().unwrap().len(), 0);
    assert!(!coordinator.has_calls_elsewhere().unwrap());
    coordinator.remove_dead_members().unwrap();
    let call = coordinator.call("w/0").unwrap().unwrap();
    assert_eq!(call.state, CallState::Uncertain);
    // Its reply may still arrive.
    worker.settle("w/0", TEN, &json!("late")).unwrap();
    let call = coordinator.call("w/0").unwrap().unwrap();
    assert_eq!(call.state, CallState::Settled);
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_and_the_coordinator_share_the_units() {
    let Some(profile) = postgres::profile() else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let run = root.path().join("shared");
    assert!(!RunFolder::can_join(&run).unwrap());
    let folder =
        RunFolder::open_in_profile(&run, "seed = 1\n", &WhenChanged::default(), Some(&profile));
    let folder = Arc::new(folder.unwrap());
    assert!(RunFolder::can_join(&run).unwrap());
    let options = ExecutorOptions {
        concurrency: Some(2),
        lease: Duration::from_secs(5),
        ..ExecutorOptions::default()
    };
    let interrupt = Interrupt::new();
    let executor = SharedExecutor::new(
        folder.clone(),
        options.clone(),
        Progress::hidden(),
        interrupt.clone(),
    );
    let items: Vec<String> = (0..200).map(|n| format!("item-{n}")).collect();
    let coordinator = tokio::spawn(async move {
        let items: &[String] = &items;
        executor
            .run(Arc::new(NamedStage::new("coordinator", 20)), &items)
            .await
    });
    let mut workers = Vec::new();
    for name in ["first", "second"] {
        let joined = Arc::new(RunFolder::join(&run, &profile).unwrap());
        let member = Member::new(name.to_owned(), vec!["s".to_owned()]);
        let session = WorkerSession::start(joined.clone(), member, options.lease).unwrap();
        let (options, interrupt) = (options.clone(), interrupt.clone());
        workers.push(tokio::spawn(async move {
            let round = loop {
                match Round::announced(joined.journal()).unwrap() {
                    Some(round) => break round,
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            };
            assert_eq!(round.differs(Some("environment")).unwrap(), None);
            let other = round.differs(Some("another")).unwrap().unwrap();
            assert!(other.contains("another Python environment"), "{other}");
            let how = (&options, &interrupt);
            let stage = Arc::new(NamedStage::new(name, 20));
            let end = session.work_on(how, stage, &round).await.unwrap();
            session.leave().await.unwrap();
            end
        }));
    }
    let summary = coordinator.await.unwrap().unwrap();
    assert_eq!((summary.done, summary.failed, summary.pending), (200, 0, 0));
    for worker in workers {
        assert_eq!(worker.await.unwrap(), WorkEnd::RoundEnded);
    }
    let units = folder.journal().units("s").unwrap();
    assert!(
        units.iter().all(|unit| unit.attempts == 1),
        "each unit once"
    );
    for name in ["coordinator", "first", "second"] {
        let made = units.iter().filter(|unit| unit.output == Some(json!(name)));
        assert!(made.count() > 20, "{name} has made few");
    }
    assert_eq!(Member::all(folder.journal()).unwrap(), []);
}

/// The unit `weak` fails for good once; the others wait until they are told to go on.
struct Weak {
    gate: Arc<tokio::sync::Notify>,
    has_failed: AtomicBool,
}

#[async_trait]
impl Stage for Weak {
    fn name(&self) -> &'static str {
        "s"
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        if item != "weak" {
            self.gate.notified().await;
        } else if !self.has_failed.swap(true, Ordering::Relaxed) {
            return Err(Failure::new(FailureKind::Item, "broken"));
        }
        Ok(json!(item))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_unit_is_tried_again_while_the_round_goes_on() {
    let Some(profile) = postgres::profile() else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let run = root.path().join("retried");
    let folder =
        RunFolder::open_in_profile(&run, "seed = 1\n", &WhenChanged::default(), Some(&profile));
    let folder = Arc::new(folder.unwrap());
    let options = ExecutorOptions {
        concurrency: Some(2),
        ..ExecutorOptions::default()
    };
    let executor = SharedExecutor::new(
        folder.clone(),
        options,
        Progress::hidden(),
        Interrupt::new(),
    );
    let gate = Arc::new(tokio::sync::Notify::new());
    let stage = Arc::new(Weak {
        gate: gate.clone(),
        has_failed: AtomicBool::new(false),
    });
    let coordinator = tokio::spawn(async move {
        let items = vec!["first".to_owned(), "weak".to_owned()];
        executor.run(stage, &items).await
    });
    let wait_for = async |state| {
        while folder.journal().state("s", "weak").unwrap() != Some(state) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    wait_for(UnitState::Failed).await;
    // As another process, which has opened the journal for itself.
    let journal = Journal::join_run(&run).unwrap();
    let retry = |kind| retry_failed(&journal, Some("s"), Some(kind)).unwrap();
    assert_eq!(retry(FailureKind::Endpoint), []);
    let retried = Retried {
        stage: "s".to_owned(),
        units: 1,
        offered: true,
    };
    assert_eq!(retry(FailureKind::Item), [retried]);
    wait_for(UnitState::Done).await;
    gate.notify_one();
    let summary = coordinator.await.unwrap().unwrap();
    assert_eq!((summary.done, summary.failed, summary.pending), (2, 0, 0));
    assert_eq!(retry(FailureKind::Item), []);
}

/// The first item waits until it is told to go on.
struct Gated(Arc<tokio::sync::Notify>);

#[async_trait]
impl Stage for Gated {
    fn name(&self) -> &'static str {
        "s"
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        if item == "first" {
            self.0.notified().await;
        }
        Ok(json!(item))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_that_ends_its_workers_fails() {
    let Some(profile) = postgres::profile() else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let run = root.path().join("ends");
    let folder =
        RunFolder::open_in_profile(&run, "seed = 1\n", &WhenChanged::default(), Some(&profile));
    let folder = Arc::new(folder.unwrap());
    let options = ExecutorOptions {
        concurrency: Some(1),
        attempts: 2,
        ..ExecutorOptions::default()
    };
    let executor = SharedExecutor::new(
        folder.clone(),
        options,
        Progress::hidden(),
        Interrupt::new(),
    );
    let gate = Arc::new(tokio::sync::Notify::new());
    let stage = Arc::new(Gated(gate.clone()));
    let coordinator = tokio::spawn(async move {
        let items = vec!["first".to_owned(), "deadly".to_owned()];
        executor.run(stage, &items).await
    });
    // A worker that leases the second unit and dies, twice.
    let worker = RunFolder::join(&run, &profile).unwrap();
    let now = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.unwrap().as_millis() as i64
    };
    let busy = || {
        folder
            .journal()
            .units("s")
            .unwrap()
            .first()
            .map(|unit| unit.attempts)
    };
    while busy() != Some(1) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut deaths = 0;
    while deaths < 2 {
        let round = Round::announced(worker.journal()).unwrap().unwrap();
        let offer = worker.journal().lease_offer(&round.id, "s", now(), 1);
        if let Some(offer) = offer.unwrap() {
            assert_eq!((offer.item.as_str(), offer.lost), ("deadly", deaths));
            deaths += 1;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    gate.notify_one();
    let summary = coordinator.await.unwrap().unwrap();
    assert_eq!((summary.done, summary.failed), (1, 1));
    let failure = folder.journal().failures().unwrap().remove(0).failure;
    assert!(
        failure.detail.contains("2 attempts ended without a result"),
        "{failure}"
    );
}

/// A stage whose unit reads a table that somebody has locked, so that it blocks its thread and the connection.
struct Blocked(Arc<RunFolder>);

#[async_trait]
impl Stage for Blocked {
    fn name(&self) -> &'static str {
        "s"
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        Ok(json!(self.0.journal().count_events(item)?))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_statement_delays_no_renewal() {
    let Some(profile) = postgres::profile() else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let run = root.path().join("slow");
    let folder =
        RunFolder::open_in_profile(&run, "seed = 1\n", &WhenChanged::default(), Some(&profile));
    let folder = Arc::new(folder.unwrap());
    let pointer = std::fs::read_to_string(run.join("journal.toml")).unwrap();
    let schema = pointer.split('"').find(|part| part.starts_with("run_slow"));
    let table = format!("\"{}\".event", schema.unwrap());
    let lock =
        format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(9); COMMIT");
    let locking = std::thread::spawn(move || postgres::sql(&lock));
    let locks = format!(
        "SELECT COUNT(*) FROM pg_locks WHERE relation = '{table}'::regclass AND granted AND mode = 'AccessExclusiveLock'"
    );
    while postgres::sql(&locks) != "1" {
        std::thread::sleep(Duration::from_millis(50));
    }
    // Another process that would take the unit as soon as its lease has ended.
    let worker = RunFolder::join(&run, &profile).unwrap();
    let waiting = std::thread::spawn(move || {
        let mut taken = None;
        while !locking.is_finished() {
            let journal = worker.journal();
            if let Some(round) = Round::announced(journal).unwrap()
                && journal.leased_until("s", "unit").unwrap() > Some(0)
            {
                let now = journal.now_millis().unwrap();
                taken = taken.or(journal.lease_offer(&round.id, "s", now, 2).unwrap());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        taken
    });
    let options = ExecutorOptions {
        concurrency: Some(1),
        lease: Duration::from_secs(4),
        ..ExecutorOptions::default()
    };
    let executor = SharedExecutor::new(
        folder.clone(),
        options,
        Progress::hidden(),
        Interrupt::new(),
    );
    let stage = Arc::new(Blocked(folder.clone()));
    let items = vec!["unit".to_owned()];
    let summary = executor.run(stage, &items).await.unwrap();
    assert_eq!((summary.done, summary.failed), (1, 0));
    assert_eq!(
        waiting.join().unwrap(),
        None,
        "the unit went to another process"
    );
    assert_eq!(folder.journal().units("s").unwrap()[0].attempts, 1);
}
