//! What every journal guarantees, whatever database holds it.

use pybench_run::{
    BatchRequest, BudgetCap, CallState, ExitCode, Failure, FailureKind, Journal, Reservation,
    ReserveError, RetryFailed, RunError, UnitState,
};
use serde_json::json;
use std::sync::Arc;

/// A place for one journal.
pub(crate) trait Place {
    /// Opens or creates it, as the process that owns the run does.
    fn try_open(&self) -> Result<Journal, RunError>;
    /// Opens it for a further worker.
    fn join(&self) -> Journal;
    /// Opens it for reading.
    fn read(&self) -> Journal;
    /// Deletes the database and keeps the run folder.
    fn lose(&self);

    fn open(&self) -> Journal {
        self.try_open().unwrap()
    }
}

/// Makes a test of each function for each kind of place.
macro_rules! conformance {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $name() {
                super::$name(&crate::places::SqlitePlace::new());
            })*
        }

        mod postgres {
            $(#[test]
            fn $name() {
                if let Some(place) = crate::places::PostgresPlace::new() {
                    super::$name(&place);
                }
            })*
        }
    };
}

conformance![
    outputs_are_in_item_order_regardless_of_completion_order,
    the_first_commit_wins,
    a_lease_excludes_others_until_it_ends,
    the_kind_of_failure_decides_what_is_retried,
    a_call_in_flight_when_the_process_is_killed_is_charged_as_uncertain,
    the_budget_holds_across_restarts,
    threads_together_never_exceed_the_budget,
    huge_reservations_do_not_wrap_around,
    huge_charges_neither_lose_the_reply_nor_break_the_totals,
    steps_have_no_gaps_and_cannot_be_replaced,
    the_output_of_a_unit_replaces_its_steps,
    pending_items_and_outputs_come_in_order,
    a_journal_in_use_can_be_read,
    batches_survive_a_restart_and_queued_calls_do_not,
    a_worker_that_lost_its_lease_is_refused,
    an_output_of_a_lost_attempt_is_refused,
    a_call_of_a_lost_attempt_is_refused,
    a_late_reply_is_charged_and_kept,
    workers_together_never_exceed_the_budget,
    only_one_worker_wins,
    text_is_kept_as_it_is,
    many_units_keep_their_order,
    paid_calls_that_are_lost_are_missed,
    people_decide_while_a_process_works,
    offered_units_are_leased_once_and_in_order,
    an_attempt_that_is_lost_is_counted,
    a_postponed_unit_keeps_its_failures_and_waits,
    an_offered_unit_is_leased_by_name,
    a_unit_in_work_is_offered_until_its_lease_ends,
    a_unit_whose_lease_or_wait_has_ended_comes_first,
    units_in_work_are_counted_by_the_clock_of_the_journal,
];

fn units_in_work_are_counted_by_the_clock_of_the_journal(place: &dyn Place) {
    let (owner, worker) = (place.open(), place.join());
    owner.enqueue("s", ["a", "b", "c"]).unwrap();
    let now = owner.now_millis().unwrap();
    let later = worker.now_millis().unwrap();
    assert!((0..5_000).contains(&(later - now)), "{now}, {later}");
    assert!(owner.lease("s", "a", now / 1000, 100).unwrap());
    assert!(worker.lease("s", "b", now / 1000, 100).unwrap());
    // This lease has ended.
    assert!(owner.lease("s", "c", now / 1000 - 100, 10).unwrap());
    for journal in [&owner, &worker, &place.read()] {
        assert_eq!(journal.count_leased("s").unwrap(), 2);
        assert_eq!(journal.count_leased("other").unwrap(), 0);
    }
    owner.complete("s", "a", &json!(1)).unwrap();
    assert_eq!(worker.count_leased("s").unwrap(), 1);
}

fn items(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const TEN: Reservation = Reservation {
    micro_usd: 10,
    tokens: 10,
};

fn cap(micro_usd: u64) -> BudgetCap {
    BudgetCap {
        micro_usd: Some(micro_usd),
        tokens: None,
    }
}

fn outputs_are_in_item_order_regardless_of_completion_order(place: &dyn Place) {
    let journal = place.open();
    journal.enqueue("s", items(&["b", "a", "c"])).unwrap();
    for item in ["c", "a", "b"] {
        journal.complete("s", item, &json!(item)).unwrap();
    }
    assert_eq!(journal.outputs::<String>("s").unwrap(), ["b", "a", "c"]);
    journal.enqueue("s", items(&["a", "d"])).unwrap();
    let states = journal.states("s").unwrap();
    let names: Vec<&str> = states.iter().map(|(item, _)| item.as_str()).collect();
    assert_eq!(names, ["b", "a", "c", "d"]);
}

fn the_first_commit_wins(place: &dyn Place) {
    let journal = place.open();
    journal.enqueue("s", items(&["a"])).unwrap();
    journal.complete("s", "a", &json!(1)).unwrap();
    journal.complete("s", "a", &json!(2)).unwrap();
    let failure = Failure::new(FailureKind::Internal, "late");
    journal.fail("s", "a", &failure, true).unwrap();
    assert_eq!(journal.outputs::<u32>("s").unwrap(), [1]);
    assert_eq!(journal.state("s", "a").unwrap(), Some(UnitState::Done));
    assert!(!journal.lease("s", "a", 0, 10).unwrap());
}

fn a_lease_excludes_others_until_it_ends(place: &dyn Place) {
    let journal = place.open();
    journal.enqueue("s", items(&["a"])).unwrap();
    assert!(journal.lease("s", "a", 100, 10).unwrap());
    assert!(!journal.lease("s", "a", 109, 10).unwrap());
    assert!(journal.lease("s", "a", 110, 10).unwrap());
    assert!(
        !journal.move_lease("s", "a", 110, 200).unwrap(),
        "not the holder"
    );
    assert!(journal.move_lease("s", "a", 120, 0).unwrap());
    assert!(journal.lease("s", "a", 111, 10).unwrap());
    drop(journal);
    let journal = place.open();
    assert!(
        journal.lease("s", "a", 111, 10).unwrap(),
        "the holder has ended"
    );
    assert_eq!(journal.units("s").unwrap()[0].attempts, 4);
}

fn the_kind_of_failure_decides_what_is_retried(place: &dyn Place) {
    let journal = place.open();
    journal.enqueue("s", items(&["item", "endpoint"])).unwrap();
    let fail = |item: &str, kind| {
        let failure = Failure::new(kind, "no");
        journal.fail("s", item, &failure, true).unwrap();
    };
    fail("item", FailureKind::Item);
    fail("endpoint", FailureKind::Endpoint);
    journal.retry_failed("s", RetryFailed::None).unwrap();
    assert_eq!(journal.summary("s").unwrap().failed, 2);
    journal
        .retry_failed("s", RetryFailed::ExceptBadItems)
        .unwrap();
    assert_eq!(journal.state("s", "item").unwrap(), Some(UnitState::Failed));
    assert_eq!(
        journal.state("s", "endpoint").unwrap(),
        Some(UnitState::Pending)
    );
    journal.retry_failed("s", RetryFailed::All).unwrap();
    assert_eq!(journal.summary("s").unwrap().pending, 2);
    let failures = journal.failures().unwrap();
    assert_eq!(failures.len(), 2, "the reason stays visible");
    assert!(failures.iter().all(|failure| !failure.last));
}

fn a_call_in_flight_when_the_process_is_killed_is_charged_as_uncertain(place: &dyn Place) {
    let journal = place.open();
    for id in ["in flight", "answered", "refused"] {
        journal.reserve(id, TEN, cap(100)).unwrap();
    }
    let used = Reservation {
        micro_usd: 3,
        tokens: 4,
    };
    journal.settle("answered", used, &json!("hello")).unwrap();
    journal.release("refused").unwrap();
    drop(journal);

    let journal = place.open();
    let state = |id: &str| journal.call(id).unwrap().map(|call| call.state);
    assert_eq!(state("in flight"), Some(CallState::Uncertain));
    assert_eq!(state("answered"), Some(CallState::Settled));
    assert_eq!(state("refused"), None);
    assert_eq!(
        journal.call("answered").unwrap().unwrap().reply,
        Some(json!("hello"))
    );
    let spent = journal.spent().unwrap();
    assert_eq!((spent.calls, spent.uncertain), (2, 1));
    assert_eq!((spent.micro_usd, spent.tokens), (13, 14));
    assert!(journal.settle("never", used, &json!(null)).is_err());
}

fn the_budget_holds_across_restarts(place: &dyn Place) {
    for round in 0..5 {
        let journal = place.open();
        let reserved = journal.reserve(&format!("{round}"), TEN, cap(35));
        match (round, reserved) {
            (0..3, Ok(())) => {}
            (3.., Err(ReserveError::OverBudget(text))) => {
                assert!(text.contains("35 allowed"), "{text}");
            }
            (_, other) => panic!("round {round}: {other:?}"),
        }
    }
}

fn threads_together_never_exceed_the_budget(place: &dyn Place) {
    let journal = Arc::new(place.open());
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let journal = journal.clone();
            std::thread::spawn(move || {
                let reserve =
                    |call: &u32| journal.reserve(&format!("{thread}/{call}"), TEN, cap(250));
                (0..10).filter(|call| reserve(call).is_ok()).count()
            })
        })
        .collect();
    let granted: usize = threads.into_iter().map(|t| t.join().unwrap()).sum();
    assert_eq!(granted, 25);
    assert_eq!(journal.spent().unwrap().micro_usd, 250);
}

fn huge_reservations_do_not_wrap_around(place: &dyn Place) {
    let journal = place.open();
    journal.reserve("a", TEN, cap(100)).unwrap();
    let huge = Reservation {
        micro_usd: u64::MAX,
        tokens: 0,
    };
    assert!(matches!(
        journal.reserve("b", huge, cap(100)),
        Err(ReserveError::OverBudget(_))
    ));
}

fn huge_charges_neither_lose_the_reply_nor_break_the_totals(place: &dyn Place) {
    const MOST: u64 = 1 << 40;
    let journal = place.open();
    let charges = [5_000_000_000_000_000_000, 1 << 63, u64::MAX, u64::MAX];
    for (call, amount) in charges.into_iter().enumerate() {
        let (id, used) = (
            call.to_string(),
            Reservation {
                micro_usd: amount,
                tokens: amount,
            },
        );
        let reserved = if call == 3 { used } else { TEN };
        journal
            .reserve(&id, reserved, BudgetCap::default())
            .unwrap();
        journal.settle(&id, used, &json!("paid")).unwrap();
        let reply = journal.call(&id).unwrap().unwrap().reply;
        assert_eq!(reply, Some(json!("paid")), "{amount}");
    }
    let spent = journal.spent().unwrap();
    assert_eq!((spent.tokens, spent.micro_usd), (4 * MOST, 4 * MOST));
    let reader = place.read();
    assert_eq!(reader.spent().unwrap(), spent);
}

fn steps_have_no_gaps_and_cannot_be_replaced(place: &dyn Place) {
    let journal = place.open();
    journal.append("t", 0, &json!("a")).unwrap();
    assert!(journal.append("t", 2, &json!("c")).is_err());
    assert!(journal.append("t", 0, &json!("b")).is_err());
    journal.append("t", 1, &json!("b")).unwrap();
    journal.append("u", 0, &json!("x")).unwrap();
    drop(journal);
    let journal = place.open();
    let payloads: Vec<_> = journal
        .events("t")
        .unwrap()
        .into_iter()
        .map(|e| e.payload)
        .collect();
    assert_eq!(payloads, [json!("a"), json!("b")]);
    journal.clear_events("t").unwrap();
    assert!(journal.events("t").unwrap().is_empty());
    assert_eq!(journal.events("u").unwrap().len(), 1);
}

fn the_output_of_a_unit_replaces_its_steps(place: &dyn Place) {
    let journal = place.open();
    journal.enqueue("s", ["t", "u"]).unwrap();
    journal.append("t", 0, &json!("a")).unwrap();
    journal.append("u", 0, &json!("b")).unwrap();
    journal.complete("s", "t", &json!(["a"])).unwrap();
    assert!(journal.events("t").unwrap().is_empty());
    assert_eq!(journal.events("u").unwrap().len(), 1);
    // A unit that is done stays as it is.
    journal.append("t", 0, &json!("c")).unwrap();
    journal.complete("s", "t", &json!(["c"])).unwrap();
    assert_eq!(journal.events("t").unwrap().len(), 1);
    let output: Option<Vec<String>> = journal.output("s", "t").unwrap();
    assert_eq!(output, Some(vec!["a".to_owned()]));
}

fn pending_items_and_outputs_come_in_order(place: &dyn Place) {
    let journal = place.open();
    let all = ["d", "a", "c", "b"];
    journal.enqueue("s", all).unwrap();
    journal.enqueue("other", ["z"]).unwrap();
    assert_eq!(journal.pending("s", all).unwrap(), (vec![0, 1, 2, 3], 0));
    journal.complete("s", "a", &json!(1)).unwrap();
    journal.complete("s", "d", &json!(2)).unwrap();
    journal.complete("other", "z", &json!(3)).unwrap();
    let repeated = ["b", "a", "b", "d", "c"];
    assert_eq!(journal.pending("s", repeated).unwrap(), (vec![0, 4], 2));
    let mut seen = Vec::new();
    let collected = journal.each_output("s", |item, output: u32| {
        seen.push((item.to_owned(), output));
        Ok(())
    });
    collected.unwrap();
    assert_eq!(seen, [("d".to_owned(), 2), ("a".to_owned(), 1)]);
}

fn a_journal_in_use_can_be_read(place: &dyn Place) {
    let journal = place.open();
    journal.set_metadata("seconds/crawl", &json!(1.5)).unwrap();
    journal.reserve("a", TEN, BudgetCap::default()).unwrap();
    let reader = place.read();
    assert_eq!(
        reader.metadata_with_prefix("seconds/").unwrap(),
        [("crawl".to_owned(), json!(1.5))]
    );
    assert_eq!(
        reader.spent().unwrap().uncertain,
        0,
        "reading changes nothing"
    );
    assert!(reader.set_metadata("x", &json!(1)).is_err());
    drop(journal);
    let reader = place.read();
    assert_eq!(reader.spent().unwrap().calls, 1);
}

fn queue(journal: &Journal, call: &str, line: &str) -> Result<(), ReserveError> {
    let digest = pybench_types::id::Digest::of_bytes(call.as_bytes());
    let request = BatchRequest {
        teacher: "t",
        request: &digest,
        line,
    };
    journal.queue_for_batch(call, TEN, cap(30), request)
}

fn batches_survive_a_restart_and_queued_calls_do_not(place: &dyn Place) {
    let journal = place.open();
    for (call, line) in [("b", "b\u{e9}"), ("a", "a"), ("c", "c")] {
        queue(&journal, call, line).unwrap();
    }
    assert!(matches!(
        queue(&journal, "d", ""),
        Err(ReserveError::OverBudget(_))
    ));
    let queued = [
        ("a".to_owned(), 1),
        ("b".to_owned(), 3),
        ("c".to_owned(), 1),
    ];
    assert_eq!(
        journal.queued_calls("t").unwrap(),
        queued,
        "by id, with lengths in bytes"
    );
    assert_eq!(journal.queued_calls("other").unwrap(), []);
    journal.create_batches("t", &[items(&["a", "b"])]).unwrap();
    drop(journal);

    let journal = place.open();
    assert_eq!(journal.call("c").unwrap(), None, "it was never sent");
    assert_eq!(journal.spent().unwrap().micro_usd, 20);
    let batches = journal.open_batches("t").unwrap();
    let [batch] = &batches[..] else {
        panic!("{batches:?}")
    };
    assert_eq!((batch.wave, batch.requests, batch.asked), (1, 2, false));
    assert_eq!(journal.batch_file(&batch.name).unwrap(), "a\nb\u{e9}\n");
    journal.batch_uploaded(&batch.name, "file").unwrap();
    journal.batch_requested(&batch.name).unwrap();
    journal.batch_created(&batch.name, "remote").unwrap();
    journal
        .settle("a", Reservation::default(), &json!(1))
        .unwrap();
    drop(journal);

    let journal = place.open();
    let after = journal.all_open_batches().unwrap();
    let ids = (
        after[0].file.as_deref(),
        after[0].asked,
        after[0].remote.as_deref(),
    );
    assert_eq!(ids, (Some("file"), true, Some("remote")));
    assert_eq!(journal.batch_calls(&batch.name).unwrap(), ["a", "b"]);
    let pending = journal.pending_calls(&batch.name).unwrap();
    assert_eq!(
        (pending.len(), pending[0].call.as_str(), pending[0].reserved),
        (1, "b", TEN)
    );
    assert_eq!(
        journal.call("b").unwrap().unwrap().request,
        Some(pending[0].request.clone())
    );
    assert!(journal.has_batched_calls().unwrap());
    journal.mark_uncertain("b").unwrap();
    journal.close_batch(&batch.name).unwrap();
    assert!(!journal.has_batched_calls().unwrap());
    assert_eq!(
        (
            journal.all_open_batches().unwrap(),
            journal.spent().unwrap().uncertain
        ),
        (vec![], 1)
    );
    queue(&journal, "e", "e").unwrap();
    journal.create_batches("t", &[items(&["e"])]).unwrap();
    let next = journal.open_batches("t").unwrap();
    assert_eq!(next[0].wave, 2);
    journal.discard_batch(&next[0].name).unwrap();
    assert_eq!(
        (
            journal.call("e").unwrap(),
            journal.all_open_batches().unwrap()
        ),
        (None, vec![])
    );
    assert!(journal.batch_created("unknown", "x").is_err());
}

/// The two handles are two workers; the first one is suspended past its lease.
fn a_worker_that_lost_its_lease_is_refused(place: &dyn Place) {
    let (first, second) = (place.open(), place.join());
    first.enqueue("s", ["t", "u"]).unwrap();
    assert!(first.lease("s", "t", 100, 10).unwrap());
    first.append("t", 0, &json!("first")).unwrap();
    assert!(!second.lease("s", "t", 105, 10).unwrap());
    assert!(second.lease("s", "t", 110, 10).unwrap());
    assert_eq!(
        second.events("t").unwrap().len(),
        1,
        "it goes on where the first one was"
    );
    second.append("t", 1, &json!("second")).unwrap();
    let failure = Failure::new(FailureKind::Internal, "late");
    let refused = [
        first.append("t", 2, &json!("late")),
        first.clear_events("t"),
        first.fail("s", "t", &failure, true),
    ];
    for error in refused.map(Result::unwrap_err) {
        assert!(matches!(error, RunError::LeaseLost(_)), "{error}");
    }
    let state = (
        second.events("t").unwrap().len(),
        second.state("s", "t").unwrap(),
    );
    assert_eq!(state, (2, Some(UnitState::Pending)));
    // Its other unit is its own.
    assert!(first.lease("s", "u", 100, 10).unwrap());
    first.append("u", 0, &json!("first")).unwrap();
    first.complete("s", "u", &json!("first")).unwrap();
    second.complete("s", "t", &json!("second")).unwrap();
    assert_eq!(first.outputs::<String>("s").unwrap(), ["second", "first"]);
}

fn an_output_of_a_lost_attempt_is_refused(place: &dyn Place) {
    let (first, second) = (place.open(), place.join());
    first.enqueue("s", ["t"]).unwrap();
    assert!(first.lease("s", "t", 100, 10).unwrap());
    assert!(second.lease("s", "t", 110, 10).unwrap());
    let error = first.complete("s", "t", &json!("late")).unwrap_err();
    assert!(matches!(error, RunError::LeaseLost(_)), "{error}");
    assert_eq!(second.state("s", "t").unwrap(), Some(UnitState::Pending));
    // A lease that only ended, and that nobody else took, is no loss.
    assert!(second.move_lease("s", "t", 120, 0).unwrap());
    second.complete("s", "t", &json!("second")).unwrap();
    assert_eq!(first.outputs::<String>("s").unwrap(), ["second"]);
}

fn a_call_of_a_lost_attempt_is_refused(place: &dyn Place) {
    let (first, second) = (place.open(), place.join());
    first.enqueue("s", ["t"]).unwrap();
    assert!(first.lease("s", "t", 100, 10).unwrap());
    assert!(second.lease("s", "t", 110, 10).unwrap());
    let refused = [
        first.reserve("t/0/0", TEN, cap(100)),
        queue(&first, "t/0/0", "line"),
    ];
    for error in refused.map(Result::unwrap_err) {
        let lost = matches!(error, ReserveError::Run(RunError::LeaseLost(_)));
        assert!(lost, "{error}");
    }
    assert_eq!(first.spent().unwrap().calls, 0);
    // A call of no unit has no lease to lose.
    first.reserve("u/0/0", TEN, cap(100)).unwrap();
    second.reserve("t/0/0", TEN, cap(100)).unwrap();
    assert_eq!(first.spent().unwrap().calls, 2);
}

fn a_late_reply_is_charged_and_kept(place: &dyn Place) {
    let (first, second) = (place.open(), place.join());
    first.enqueue("s", ["t"]).unwrap();
    assert!(first.lease("s", "t", 100, 10).unwrap());
    first.reserve("t/0", TEN, cap(100)).unwrap();
    assert!(second.lease("s", "t", 110, 10).unwrap());
    second.mark_uncertain("t/0").unwrap();
    let used = Reservation {
        micro_usd: 7,
        tokens: 8,
    };
    first.settle("t/0", used, &json!("late")).unwrap();
    let call = second.call("t/0").unwrap().unwrap();
    assert_eq!(
        (call.state, call.reply),
        (CallState::Settled, Some(json!("late")))
    );
    let spent = second.spent().unwrap();
    assert_eq!(
        (spent.calls, spent.uncertain, spent.micro_usd, spent.tokens),
        (1, 0, 7, 8)
    );
    assert!(
        second.reserve("t/0", TEN, cap(100)).is_err(),
        "an attempt is reserved once"
    );
    assert_eq!(second.spent().unwrap().micro_usd, 7);
}

/// Eight workers, each over a connection of its own, reserve 10, pay 1 to 10 of it and go on.
fn workers_together_never_exceed_the_budget(place: &dyn Place) {
    const CAP: u64 = 1_000;
    let journal = place.open();
    let workers: Vec<Journal> = (0..8).map(|_| place.join()).collect();
    let most = std::thread::scope(|scope| {
        let work = |number: usize, journal: &Journal| {
            let (mut most, mut paid) = (0, 0);
            for call in 0..40_u64 {
                let id = format!("{number}/{call}");
                let used = Reservation {
                    micro_usd: 1 + (call + number as u64) % 10,
                    tokens: 1,
                };
                match journal.reserve(&id, TEN, cap(CAP)) {
                    Ok(()) => journal.settle(&id, used, &json!(call)).unwrap(),
                    Err(ReserveError::OverBudget(_)) => continue,
                    Err(ReserveError::Run(error)) => panic!("{error}"),
                }
                paid += used.micro_usd;
                most = most.max(journal.spent().unwrap().micro_usd);
            }
            (most, paid)
        };
        let threads: Vec<_> = workers
            .iter()
            .enumerate()
            .map(|(number, journal)| scope.spawn(move || work(number, journal)))
            .collect();
        let ends: Vec<(u64, u64)> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        let paid: u64 = ends.iter().map(|(_, paid)| paid).sum();
        assert_eq!(journal.spent().unwrap().micro_usd, paid);
        ends.into_iter().map(|(most, _)| most).max().unwrap()
    });
    assert!(most <= CAP, "{most}");
    let one = Reservation {
        micro_usd: 1,
        tokens: 1,
    };
    let mut call = 0;
    while journal
        .reserve(&format!("last/{call}"), TEN, cap(CAP))
        .is_ok()
    {
        journal
            .settle(&format!("last/{call}"), one, &json!(null))
            .unwrap();
        call += 1;
    }
    let spent = journal.spent().unwrap().micro_usd;
    assert!((CAP - 9..=CAP).contains(&spent), "{spent} of {CAP}");
}

/// One position of one trajectory, and one unit, for eight workers at the same time.
fn only_one_worker_wins(place: &dyn Place) {
    let journal = place.open();
    journal
        .enqueue("s", (0..20).map(|n| n.to_string()))
        .unwrap();
    let workers: Vec<Journal> = (0..8).map(|_| place.join()).collect();
    let wins: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let work = |journal: &Journal| {
            let items = || (0..20).map(|n| n.to_string());
            let leased = items().filter(|item| journal.lease("s", item, 0, 10).unwrap());
            let leased = leased.count();
            let appended = (0..20).filter(|n| journal.append("t", *n, &json!(n)).is_ok());
            (leased, appended.count())
        };
        let threads: Vec<_> = workers
            .iter()
            .map(|journal| scope.spawn(move || work(journal)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    assert_eq!(wins.iter().map(|(leased, _)| leased).sum::<usize>(), 20);
    let events = journal.events("t").unwrap();
    let appended = wins.iter().map(|(_, appended)| appended).sum::<usize>();
    assert_eq!(events.len(), appended);
    let payloads: Vec<_> = events.into_iter().map(|event| event.payload).collect();
    assert!(
        payloads
            .iter()
            .enumerate()
            .all(|(n, payload)| *payload == json!(n))
    );
}

fn text_is_kept_as_it_is(place: &dyn Place) {
    let journal = place.open();
    let value = json!({"z": "a\u{0}b", "a": ["\u{1f600}", 1.5e300], "teacher": "human"});
    journal.enqueue("rollout", ["t"]).unwrap();
    journal.append("t", 0, &value).unwrap();
    assert_eq!(journal.events("t").unwrap()[0].payload, value);
    journal.complete("rollout", "t", &value).unwrap();
    journal.set_metadata("key", &value).unwrap();
    let output: Option<serde_json::Value> = journal.output("rollout", "t").unwrap();
    assert_eq!(
        (output, journal.metadata("key").unwrap()),
        (Some(value.clone()), Some(value))
    );
    // Sorted by bytes, whatever the locale of the server is.
    for key in ["k/b", "k/B", "k/a", "k/_", "K/x"] {
        journal.set_metadata(key, &json!(1)).unwrap();
    }
    let keys = journal.metadata_with_prefix("k/").unwrap();
    let keys: Vec<&str> = keys.iter().map(|(key, _)| key.as_str()).collect();
    assert_eq!(keys, ["B", "_", "a", "b"]);
}

fn many_units_keep_their_order(place: &dyn Place) {
    let journal = place.open();
    let items: Vec<String> = (0..12_000)
        .map(|n| format!("item-{}", n * 7919 % 12_000))
        .collect();
    journal.enqueue("s", &items).unwrap();
    journal.enqueue("s", &items).unwrap();
    let states = journal.states("s").unwrap();
    assert!(states.iter().map(|(item, _)| item).eq(&items));
    let (pending, other) = journal.pending("s", &items).unwrap();
    assert_eq!((pending.len(), other), (12_000, 0));
    for item in items.iter().take(100).rev() {
        journal.complete("s", item, &json!(item)).unwrap();
    }
    assert_eq!(journal.outputs::<String>("s").unwrap(), items[..100]);
    assert_eq!(journal.summary("s").unwrap().done, 100);
}

fn paid_calls_that_are_lost_are_missed(place: &dyn Place) {
    let journal = place.open();
    journal.reserve("a/0", TEN, cap(100)).unwrap();
    journal.settle("a/0", TEN, &json!("reply")).unwrap();
    drop(journal);
    place.lose();
    let error = place.try_open().unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::BadInput);
    assert!(
        error.to_string().contains("lost 1 of 1 paid calls"),
        "{error}"
    );
}

fn people_decide_while_a_process_works(place: &dyn Place) {
    let (owner, person) = (place.open(), place.join());
    owner.enqueue("s", ["t"]).unwrap();
    assert!(owner.lease("s", "t", 100, 10).unwrap());
    let key = format!("{}t/ann", pybench_run::TRAJECTORY_REVIEWS);
    person.set_metadata_synced(&key, &json!("first")).unwrap();
    person.set_metadata_synced(&key, &json!("last")).unwrap();
    drop(person);
    assert_eq!(owner.metadata(&key).unwrap(), Some(json!("last")));
    assert_eq!(owner.leased_until("s", "t").unwrap(), Some(110));
    owner.complete("s", "t", &json!(1)).unwrap();
    drop(owner);
    assert_eq!(place.read().metadata(&key).unwrap(), Some(json!("last")));
}

fn offered_units_are_leased_once_and_in_order(place: &dyn Place) {
    let journal = place.open();
    journal.enqueue("s", items(&["b", "a", "c", "d"])).unwrap();
    journal.complete("s", "d", &json!(0)).unwrap();
    // Neither a unit that is done nor one that was never enqueued is offered.
    journal
        .offer("1", "s", &items(&["a", "b", "d", "x"]))
        .unwrap();
    let lease = |round: &str| journal.lease_offer(round, "s", 100_000, 10).unwrap();
    assert_eq!(lease("2"), None, "another round");
    let first = lease("1").unwrap();
    assert_eq!(
        (first.item.as_str(), first.attempt, first.until, first.lost),
        ("b", 1, 110, 0)
    );
    assert_eq!(lease("1").unwrap().item, "a");
    assert_eq!(lease("1"), None, "`c` is not offered");
    journal.complete("s", "b", &json!(1)).unwrap();
    let failure = Failure::new(FailureKind::Item, "no");
    journal.fail("s", "a", &failure, true).unwrap();
    let counted = |round: &str| {
        let counts = journal.sweep_offers(round).unwrap();
        (counts.done, counts.failed, counts.open, counts.free)
    };
    assert_eq!(counted("1"), (1, 1, 0, 0));
    journal.offer("1", "s", &items(&["c"])).unwrap();
    assert_eq!(counted("1"), (0, 0, 1, 1));
    journal.withdraw("1", "s", "c").unwrap();
    assert_eq!(lease("1"), None);
    journal.offer("1", "s", &items(&["c"])).unwrap();
    journal.clear_offers().unwrap();
    assert_eq!(lease("1"), None);
    // A unit that is offered in a later round belongs to that one.
    journal.offer("1", "s", &items(&["c"])).unwrap();
    journal.offer("2", "s", &items(&["c"])).unwrap();
    assert_eq!(lease("1"), None);
    assert_eq!(lease("2").unwrap().item, "c");
    assert_eq!(counted("2"), (0, 0, 1, 0), "a unit in work is not free");
}

fn an_attempt_that_is_lost_is_counted(place: &dyn Place) {
    let journal = place.open();
    journal.enqueue("s", items(&["a"])).unwrap();
    journal.offer("1", "s", &items(&["a"])).unwrap();
    let lease = |now| journal.lease_offer("1", "s", now, 10).unwrap();
    assert_eq!(lease(100_000).unwrap().lost, 0);
    assert_eq!(lease(109_999), None);
    let again = lease(110_000).unwrap();
    assert_eq!((again.attempt, again.lost), (2, 1));
    // One that is given back is not.
    assert!(journal.move_lease("s", "a", again.until, 0).unwrap());
    let again = lease(111_000).unwrap();
    assert_eq!((again.attempt, again.lost), (3, 1));
    assert_eq!(lease(121_000).unwrap().lost, 2);
}

fn a_postponed_unit_keeps_its_failures_and_waits(place: &dyn Place) {
    let journal = place.open();
    journal.enqueue("s", items(&["a", "b"])).unwrap();
    journal.offer("1", "s", &items(&["a", "b"])).unwrap();
    let failure = Failure::new(FailureKind::Endpoint, "server: 500").retryable();
    let lease = |now| journal.lease_offer("1", "s", now, 10).unwrap();
    assert_eq!(lease(100_000).unwrap().failures, "");
    journal
        .postpone("1", ("s", "a"), "{\"\":1}", 100_500)
        .unwrap();
    journal.fail("s", "a", &failure, false).unwrap();
    assert_eq!(lease(100_499).unwrap().item, "b", "`a` waits");
    let again = lease(100_500).unwrap();
    assert_eq!(
        (again.item.as_str(), again.failures.as_str(), again.lost),
        ("a", "{\"\":1}", 0)
    );
    // A handle that has lost the unit changes nothing.
    let other = place.join();
    assert_eq!(
        other
            .lease_offer("1", "s", 111_000, 10)
            .unwrap()
            .unwrap()
            .item,
        "a"
    );
    journal
        .postpone("1", ("s", "a"), "{\"\":9}", 900_000)
        .unwrap();
    drop(journal);
    let last = other.lease_offer("1", "s", 130_000, 10).unwrap().unwrap();
    assert_eq!(
        (last.item.as_str(), last.failures.as_str()),
        ("a", "{\"\":1}")
    );
}

fn an_offered_unit_is_leased_by_name(place: &dyn Place) {
    let journal = place.open();
    journal.enqueue("s", items(&["a", "b", "c"])).unwrap();
    journal.offer("1", "s", &items(&["a", "b"])).unwrap();
    assert_eq!(journal.offered("1").unwrap(), ["a", "b"]);
    let lease = |item, now| journal.lease_offered("1", ("s", item), now, 10).unwrap();
    let from = |item| journal.offered_from("1", "s", item).unwrap();
    assert_eq!((from("a"), from("b"), from("c")), (Some(0), Some(0), None));
    let second = lease("b", 100_000).unwrap();
    assert_eq!((second.item.as_str(), second.until), ("b", 110));
    assert_eq!(lease("b", 100_000), None);
    assert_eq!(from("b"), Some(110_000), "until the lease ends");
    assert_eq!(lease("c", 100_000), None, "it is not offered");
    let failure = Failure::new(FailureKind::Endpoint, "server: 500").retryable();
    journal.postpone("1", ("s", "b"), "{}", 120_000).unwrap();
    journal.fail("s", "b", &failure, false).unwrap();
    assert_eq!(from("b"), Some(120_000), "until it may be tried again");
    assert_eq!(lease("b", 119_999), None);
    let again = lease("b", 120_000).unwrap();
    assert_eq!((again.failures.as_str(), again.lost), ("{}", 0));
    assert_eq!(journal.count_events("b").unwrap(), 0);
    journal.append("b", 0, &json!("reply")).unwrap();
    assert_eq!(journal.count_events("b").unwrap(), 1);
    journal.complete("s", "b", &json!(1)).unwrap();
    assert_eq!(from("b"), None);
    journal.sweep_offers("1").unwrap();
    assert_eq!(journal.offered("1").unwrap(), ["a"]);
}

fn a_unit_in_work_is_offered_until_its_lease_ends(place: &dyn Place) {
    let journal = place.open();
    let all = items(&["a", "b", "c", "d"]);
    journal.enqueue("s", all.clone()).unwrap();
    let lease = |now| journal.lease_offer("1", "s", now, 10).unwrap();
    let taken = |now| lease(now).map(|offer| (offer.item, offer.lost));
    let unit = |item: &str, lost: u32| Some((item.to_owned(), lost));
    // One that a worker had when the coordinator offered it.
    assert!(journal.lease("s", "a", 100, 20).unwrap());
    journal.offer("1", "s", &all).unwrap();
    assert_eq!(taken(100_000), unit("b", 0));
    assert_eq!(taken(100_000), unit("c", 0));
    // It is renewed, and `c` is not.
    assert!(journal.move_lease("s", "b", 110, 130).unwrap());
    assert_eq!(taken(110_000), unit("c", 1), "before what nobody has had");
    // What is given back comes in its order.
    assert!(journal.move_lease("s", "b", 130, 0).unwrap());
    assert_eq!(taken(110_000), unit("b", 0));
    assert_eq!(taken(110_000), unit("d", 0));
    assert_eq!(taken(119_999), None);
    // A wait after a failure is longer than a lease that is renewed meanwhile.
    journal.postpone("1", ("s", "b"), "{}", 500_000).unwrap();
    assert!(journal.move_lease("s", "b", 120, 130).unwrap());
    let failure = Failure::new(FailureKind::Endpoint, "server: 500").retryable();
    journal.fail("s", "b", &failure, false).unwrap();
    for (now, item) in [(120_000, "a"), (120_000, "c"), (120_000, "d")] {
        assert_eq!(lease(now).unwrap().item, item);
    }
    assert_eq!(taken(129_999), None, "`b` waits");
    for item in ["a", "c", "d"] {
        journal.complete("s", item, &json!(item)).unwrap();
    }
    assert_eq!(taken(499_999), None, "`b` waits, and the others are done");
    assert_eq!(taken(500_000), unit("b", 0));
}

fn a_unit_whose_lease_or_wait_has_ended_comes_first(place: &dyn Place) {
    let journal = place.open();
    let all = items(&["a", "b", "c", "d", "e"]);
    journal.enqueue("s", all.clone()).unwrap();
    journal.offer("1", "s", &all).unwrap();
    let given = |item, now| journal.lease_offered("1", ("s", item), now, 10).unwrap();
    let next = |now| {
        let offer = journal.lease_offer("1", "s", now, 10).unwrap();
        offer.map(|offer| offer.item)
    };
    let unit = |item: &str| Some(item.to_owned());
    // A queue brings units in any order: `e` is lost, `d` fails and waits, `c` is given back.
    for item in ["e", "d"] {
        assert!(given(item, 100_000).is_some());
    }
    journal.postpone("1", ("s", "d"), "{}", 105_000).unwrap();
    let failure = Failure::new(FailureKind::Endpoint, "server: 500").retryable();
    journal.fail("s", "d", &failure, false).unwrap();
    let back = given("c", 100_000).unwrap();
    assert!(journal.move_lease("s", "c", back.until, 0).unwrap());
    assert_eq!(next(100_000), unit("a"), "nothing is due");
    assert_eq!(next(105_000), unit("d"), "its wait has ended");
    assert_eq!(next(110_000), unit("a"), "its lease has ended");
    assert_eq!(next(110_000), unit("e"), "its lease has ended too");
    // One that has waited is given back, and is like one that no worker has had.
    assert!(journal.move_lease("s", "d", 115, 0).unwrap());
    for item in ["b", "c", "d"] {
        assert_eq!(next(110_000), unit(item));
    }
    assert_eq!(next(110_000), None);
}
