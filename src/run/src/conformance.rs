//! Tests that every implementation of [`Executor`] must pass; each implementation calls [`all`]. The tests of
//! `pybench-cluster` include this file for a journal in PostgreSQL.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use pybench_types::id::Digest;
use serde_json::{Value, json};
use tokio::sync::{Barrier, Notify};

use super::*;

/// Makes executors that share one run folder.
pub(crate) trait Factory: Send + Sync {
    type Executor: Executor + 'static;

    /// Opens a run folder whose journal is where the executor needs it.
    fn open(&self, root: &Path) -> RunFolder {
        RunFolder::open(root, "").unwrap()
    }

    fn make(
        &self,
        folder: &Arc<RunFolder>,
        options: ExecutorOptions,
        interrupt: &Interrupt,
    ) -> Self::Executor;
}

/// What a scripted stage does with an item on its nth attempt (from 1).
type Script = dyn Fn(&str, u32) -> Act + Send + Sync;

enum Act {
    Done,
    Fail(Failure),
    /// Wait for the notification, then succeed.
    Wait(Arc<Notify>),
    /// Wait at the barrier, then succeed.
    Barrier(Arc<Barrier>),
    Hang,
    Panic,
}

/// A stage that follows a script and counts attempts.
struct Scripted {
    script: Box<Script>,
    attempts: Mutex<BTreeMap<String, u32>>,
    running: AtomicUsize,
    most_running: AtomicUsize,
}

impl Scripted {
    fn new(script: impl Fn(&str, u32) -> Act + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            script: Box::new(script),
            attempts: Mutex::default(),
            running: AtomicUsize::new(0),
            most_running: AtomicUsize::new(0),
        })
    }

    fn attempts(&self, item: &str) -> u32 {
        *self.attempts.lock().unwrap().get(item).unwrap_or(&0)
    }

    fn all_attempts(&self) -> u32 {
        self.attempts.lock().unwrap().values().sum()
    }
}

#[async_trait]
impl Stage for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let attempt = {
            let mut attempts = self.attempts.lock().unwrap();
            let attempt = attempts.entry(item.to_owned()).or_default();
            *attempt += 1;
            *attempt
        };
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_running.fetch_max(running, Ordering::SeqCst);
        let result = match (self.script)(item, attempt) {
            Act::Done => Ok(json!(item)),
            Act::Fail(failure) => Err(failure),
            Act::Wait(notify) => {
                notify.notified().await;
                Ok(json!(item))
            }
            Act::Barrier(barrier) => {
                barrier.wait().await;
                Ok(json!(item))
            }
            Act::Hang => std::future::pending().await,
            Act::Panic => panic!("scripted"),
        };
        self.running.fetch_sub(1, Ordering::SeqCst);
        result
    }
}

/// A run folder with the executors of the simulated processes.
struct TestRun<'a, F: Factory> {
    factory: &'a F,
    _root: tempfile::TempDir,
    folder: Arc<RunFolder>,
    interrupt: Interrupt,
}

impl<'a, F: Factory> TestRun<'a, F> {
    fn new(factory: &'a F) -> Self {
        let root = tempfile::tempdir().unwrap();
        let folder = Arc::new(factory.open(root.path()));
        Self {
            factory,
            _root: root,
            folder,
            interrupt: Interrupt::new(),
        }
    }

    fn executor(&self, options: ExecutorOptions) -> F::Executor {
        self.factory.make(&self.folder, options, &self.interrupt)
    }

    async fn run(&self, stage: &Arc<Scripted>, items: &[String]) -> Result<StageSummary, RunError> {
        self.executor(quick()).run(stage.clone(), &items).await
    }

    fn outputs(&self) -> Vec<String> {
        self.folder.journal().outputs("scripted").unwrap()
    }
}

/// Short waits, one unit at a time.
fn quick() -> ExecutorOptions {
    ExecutorOptions {
        concurrency: Some(1),
        attempts: 3,
        // On a busy machine, a thread may have to wait for a second before it renews a lease.
        lease: Duration::from_secs(3),
        backoff: Duration::from_millis(1),
        max_wait: Duration::from_secs(1),
        ..ExecutorOptions::default()
    }
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|i| format!("item-{i}")).collect()
}

fn endpoint() -> Failure {
    Failure::new(FailureKind::Endpoint, "server: 500").retryable()
}

/// Runs all tests.
pub(crate) async fn all(factory: &impl Factory) {
    results_come_in_item_order(factory).await;
    units_run_concurrently_up_to_the_limit(factory).await;
    done_units_are_not_repeated(factory).await;
    failures_are_retried_and_counted(factory).await;
    attempts_are_counted_for_each_call(factory).await;
    outages_do_not_use_up_the_attempts(factory).await;
    deferred_units_stay_pending(factory).await;
    a_panic_is_an_internal_failure(factory).await;
    a_unit_that_hangs_fails_and_the_rest_ends(factory).await;
    the_same_command_retries_all_but_bad_items(factory).await;
    a_lease_of_another_worker_is_waited_for(factory).await;
    a_dropped_run_resumes(factory).await;
    a_used_up_budget_stops_new_work(factory).await;
    a_used_up_time_budget_starts_nothing(factory).await;
    a_refused_api_key_stops_new_work(factory).await;
    a_store_that_refuses_stops_new_work(factory).await;
    the_first_interrupt_finishes_work_in_flight(factory).await;
    the_second_interrupt_stops_now(factory).await;
}

async fn results_come_in_item_order(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let notify = Arc::new(Notify::new());
    let first = notify.clone();
    // The first item finishes last: it waits for the last one.
    let stage = Scripted::new(move |item, _| match item {
        "item-0" => Act::Wait(first.clone()),
        "item-5" => {
            notify.notify_one();
            Act::Done
        }
        _ => Act::Done,
    });
    let items = numbered(6);
    let twice = [items.clone(), items.clone()].concat();
    let options = ExecutorOptions {
        concurrency: Some(2),
        ..quick()
    };
    let summary = test
        .executor(options)
        .run(stage.clone(), &twice)
        .await
        .unwrap();
    assert_eq!((summary.done, summary.failed, summary.pending), (6, 0, 0));
    assert_eq!(test.outputs(), items);
    assert_eq!(stage.all_attempts(), 6, "each item once");
}

async fn units_run_concurrently_up_to_the_limit(factory: &impl Factory) {
    let test = TestRun::new(factory);
    // Finishes only if three units run at the same time.
    let barrier = Arc::new(Barrier::new(3));
    let stage = Scripted::new(move |_, _| Act::Barrier(barrier.clone()));
    let options = ExecutorOptions {
        concurrency: Some(3),
        ..quick()
    };
    test.executor(options)
        .run(stage.clone(), &numbered(9))
        .await
        .unwrap();
    assert_eq!(stage.most_running.load(Ordering::SeqCst), 3);
}

async fn done_units_are_not_repeated(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let stage = Scripted::new(|_, _| Act::Done);
    test.run(&stage, &numbered(2)).await.unwrap();
    test.run(&stage, &numbered(4)).await.unwrap();
    assert_eq!(stage.all_attempts(), 4);
    assert_eq!(test.outputs(), numbered(4));
}

async fn failures_are_retried_and_counted(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let stage = Scripted::new(|item, attempt| match item {
        "item-0" if attempt < 3 => Act::Fail(endpoint()),
        "item-1" => Act::Fail(endpoint()),
        "item-2" => Act::Fail(Failure::new(FailureKind::Item, "broken file")),
        "item-3" => Act::Fail(Failure {
            retry_after: Some(Duration::from_secs(86_400)),
            ..endpoint()
        }),
        _ => Act::Done,
    });
    let summary = test.run(&stage, &numbered(5)).await.unwrap();
    assert_eq!((summary.done, summary.failed, summary.pending), (2, 3, 0));
    let attempts: Vec<u32> = numbered(5)
        .iter()
        .map(|item| stage.attempts(item))
        .collect();
    assert_eq!(attempts, [3, 3, 1, 1, 1]);
    let failures = test.folder.journal().failures().unwrap();
    let kinds: Vec<_> = failures.iter().map(|f| f.failure.kind).collect();
    assert_eq!(
        kinds,
        [
            FailureKind::Endpoint,
            FailureKind::Item,
            FailureKind::Endpoint
        ]
    );
}

async fn attempts_are_counted_for_each_call(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let at = |call: u32| Act::Fail(endpoint().of_call(Digest::of_json(&call)));
    let stage = Scripted::new(move |item, attempt| match (item, attempt) {
        // Each of four calls fails twice.
        ("item-0", 1..9) => at((attempt - 1) / 2),
        ("item-1", _) => at(0),
        _ => Act::Done,
    });
    let summary = test.run(&stage, &numbered(2)).await.unwrap();
    assert_eq!((summary.done, summary.failed), (1, 1));
    assert_eq!((stage.attempts("item-0"), stage.attempts("item-1")), (9, 3));
}

async fn outages_do_not_use_up_the_attempts(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let outage = || Failure::from(RunError::Store("away".to_owned()));
    let stage = Scripted::new(move |_, attempt| match attempt {
        1 | 2 => Act::Fail(endpoint()),
        3..6 => Act::Fail(outage()),
        _ => Act::Done,
    });
    let summary = test.run(&stage, &numbered(1)).await.unwrap();
    assert_eq!((summary.done, summary.failed), (1, 0));
    assert_eq!(stage.attempts("item-0"), 6);
}

async fn deferred_units_stay_pending(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let stage = Scripted::new(|item, attempt| match item {
        "item-1" if attempt < 7 => Act::Fail(Failure::new(FailureKind::Deferred, "later")),
        _ => Act::Done,
    });
    for _ in 1..7 {
        let summary = test.run(&stage, &numbered(3)).await.unwrap();
        assert_eq!((summary.done, summary.failed, summary.pending), (2, 0, 1));
        assert_eq!(test.folder.journal().failures().unwrap(), []);
    }
    let summary = test.run(&stage, &numbered(3)).await.unwrap();
    assert_eq!((summary.done, summary.pending), (3, 0));
    assert_eq!(stage.attempts("item-1"), 7);
}

async fn a_panic_is_an_internal_failure(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let stage = Scripted::new(|item, _| match item {
        "item-0" => Act::Panic,
        _ => Act::Done,
    });
    let summary = test.run(&stage, &numbered(2)).await.unwrap();
    assert_eq!((summary.done, summary.failed), (1, 1));
    let failure = test.folder.journal().failures().unwrap().remove(0).failure;
    assert_eq!(failure.kind, FailureKind::Internal);
    assert!(failure.detail.contains("scripted"), "{failure}");
}

async fn a_unit_that_hangs_fails_and_the_rest_ends(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let stage = Scripted::new(|item, attempt| match (item, attempt) {
        ("item-0", _) | ("item-2", 1) => Act::Hang,
        _ => Act::Done,
    });
    let options = ExecutorOptions {
        unit_limit: Some(Duration::from_millis(600)),
        ..quick()
    };
    let summary = test
        .executor(options)
        .run(stage.clone(), &numbered(4))
        .await
        .unwrap();
    assert_eq!((summary.done, summary.failed, summary.pending), (3, 1, 0));
    assert_eq!((stage.attempts("item-0"), stage.attempts("item-2")), (3, 2));
    let failure = test.folder.journal().failures().unwrap().remove(0).failure;
    assert_eq!(failure.kind, FailureKind::Internal);
    assert!(
        failure.detail.contains("did not end within 0.01 minutes"),
        "{failure}"
    );
}

async fn the_same_command_retries_all_but_bad_items(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let stage = Scripted::new(|item, attempt| match (item, attempt) {
        ("item-0", 1..=3) => Act::Fail(endpoint()),
        ("item-1", 1) => Act::Fail(Failure::new(FailureKind::Item, "broken file")),
        _ => Act::Done,
    });
    let items = numbered(2);
    assert_eq!(test.run(&stage, &items).await.unwrap().failed, 2);
    assert_eq!(test.run(&stage, &items).await.unwrap().failed, 1);
    assert_eq!((stage.attempts("item-0"), stage.attempts("item-1")), (4, 1));
    let options = ExecutorOptions {
        retry_failed: RetryFailed::All,
        ..quick()
    };
    let summary = test
        .executor(options)
        .run(stage.clone(), &items)
        .await
        .unwrap();
    assert_eq!((summary.done, summary.failed), (2, 0));
}

async fn a_lease_of_another_worker_is_waited_for(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let journal = test.folder.journal();
    journal.enqueue("scripted", numbered(1)).unwrap();
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    // The holder has died and will never commit.
    assert!(
        journal
            .lease("scripted", "item-0", now.as_secs() as i64, 2)
            .unwrap()
    );
    let stage = Scripted::new(|_, _| Act::Done);
    let summary = test.run(&stage, &numbered(1)).await.unwrap();
    assert_eq!((summary.done, stage.all_attempts()), (1, 1));
    assert_eq!(journal.units("scripted").unwrap()[0].attempts, 2);
}

async fn a_dropped_run_resumes(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let stage = Scripted::new(|item, attempt| match (item, attempt) {
        ("item-1", 1) => Act::Hang,
        _ => Act::Done,
    });
    let (executor, running) = (test.executor(quick()), stage.clone());
    let hanging = tokio::spawn(async move { executor.run(running, &numbered(3)).await });
    while stage.attempts("item-1") == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    hanging.abort();
    assert!(hanging.await.unwrap_err().is_cancelled());
    let summary = test.run(&stage, &numbered(3)).await.unwrap();
    assert_eq!((summary.done, summary.pending), (3, 0));
    let attempts: Vec<u32> = numbered(3)
        .iter()
        .map(|item| stage.attempts(item))
        .collect();
    assert_eq!(attempts, [1, 2, 1]);
}

async fn a_used_up_budget_stops_new_work(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let stage = Scripted::new(|item, attempt| match (item, attempt) {
        ("item-1", 1) => Act::Fail(Failure::new(FailureKind::Budget, "1 dollar allowed")),
        _ => Act::Done,
    });
    let error = test.run(&stage, &numbered(4)).await.unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Budget);
    assert!(error.to_string().contains("1 dollar allowed"), "{error}");
    assert_eq!(stage.all_attempts(), 2, "no new unit started");
    let summary = test.folder.journal().summary("scripted").unwrap();
    assert_eq!((summary.done, summary.failed, summary.pending), (1, 0, 3));
    // Once the budget is raised, the same command continues.
    assert_eq!(test.run(&stage, &numbered(4)).await.unwrap().done, 4);
}

async fn a_used_up_time_budget_starts_nothing(factory: &impl Factory) {
    let test = TestRun::new(factory);
    test.folder
        .journal()
        .set_metadata("seconds/earlier", &json!(60.0))
        .unwrap();
    let stage = Scripted::new(|_, _| Act::Done);
    let minute = Some(Duration::from_secs(60));
    let options = ExecutorOptions {
        time_budget: minute,
        ..quick()
    };
    let error = test
        .executor(options)
        .run(stage.clone(), &numbered(2))
        .await
        .unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Budget);
    assert_eq!(stage.all_attempts(), 0);
    let options = ExecutorOptions {
        time_budget: Some(Duration::from_secs(3600)),
        ..quick()
    };
    assert_eq!(
        test.executor(options)
            .run(stage, &numbered(2))
            .await
            .unwrap()
            .done,
        2
    );
    let seconds = test.folder.journal().metadata("seconds/scripted").unwrap();
    assert!(
        seconds.and_then(|s| s.as_f64()).is_some(),
        "the time is recorded"
    );
}

async fn a_refused_api_key_stops_new_work(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let stage =
        Scripted::new(|_, _| Act::Fail(Failure::new(FailureKind::Endpoint, "unauthorized: 401")));
    let error = test.run(&stage, &numbered(4)).await.unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Endpoint);
    assert_eq!(stage.all_attempts(), 1);
}

async fn a_store_that_refuses_stops_new_work(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let stage = Scripted::new(|item, attempt| match (item, attempt) {
        ("item-1", 1) => Act::Fail(RunError::StoreRefused("s3://b: 403".to_owned()).into()),
        _ => Act::Done,
    });
    let error = test.run(&stage, &numbered(4)).await.unwrap_err();
    assert!(matches!(error, RunError::StoreRefused(_)), "{error:?}");
    assert!(error.to_string().contains("s3://b: 403"), "{error}");
    assert_eq!(stage.all_attempts(), 2, "no new unit started");
    let summary = test.folder.journal().summary("scripted").unwrap();
    assert_eq!((summary.done, summary.failed, summary.pending), (1, 0, 3));
    // Once the store can be used, the same command continues.
    assert_eq!(test.run(&stage, &numbered(4)).await.unwrap().done, 4);
}

async fn the_first_interrupt_finishes_work_in_flight(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let notify = Arc::new(Notify::new());
    let (waiting, interrupt) = (notify.clone(), test.interrupt.clone());
    let stage = Scripted::new(move |item, _| match item {
        "item-1" => {
            interrupt.raise();
            waiting.notify_one();
            Act::Wait(waiting.clone())
        }
        _ => Act::Done,
    });
    let error = test.run(&stage, &numbered(4)).await.unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Interrupted);
    assert_eq!(test.outputs(), numbered(2));
    assert_eq!(stage.all_attempts(), 2);
}

async fn the_second_interrupt_stops_now(factory: &impl Factory) {
    let test = TestRun::new(factory);
    let interrupt = test.interrupt.clone();
    let stage = Scripted::new(move |item, attempt| match (item, attempt) {
        ("item-1", 1) => {
            interrupt.raise();
            interrupt.raise();
            Act::Hang
        }
        _ => Act::Done,
    });
    let error = test.run(&stage, &numbered(3)).await.unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Interrupted);
    assert_eq!(test.outputs(), numbered(1));
    // A new process without an interrupt continues.
    let next = Interrupt::new();
    let executor = test.factory.make(&test.folder, quick(), &next);
    assert_eq!(executor.run(stage, &numbered(3)).await.unwrap().done, 3);
}
