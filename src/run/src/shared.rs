//! The shared executor: the coordinator of a run offers the units of a stage in its journal, and works on them together
//! with other processes.
//!
//! The journal decides everything that processes have to agree on: who has a unit, how often it has failed, what may be
//! spent. The coordinator alone decides which units are offered and when the round ends.

mod announcement;
mod lease;
#[cfg(test)]
mod memory_queue;
mod periodic;
mod queue;
mod retry;
mod unit_loop;
mod worker;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::Value;
use tokio::task::{JoinError, JoinSet};

pub use self::announcement::Round;
use self::announcement::StopReason;
pub use self::queue::{Delivery, DeliveryEnd, UnitQueue};
use self::retry::last_retry;
pub use self::retry::{Retried, retry_failed};
use self::unit_loop::{AttemptEnd, UnitLoop};
pub use self::worker::{Member, WorkEnd, WorkerMachine, WorkerSession};
use super::local::{StageClock, out_of_time, sleep_or_never, time_left};
use super::pace::PaceMeter;
use super::pending_items::PendingItems;
use super::progress::SharedProgress;
use super::{
    Executor, ExecutorOptions, InFlight, Interrupt, Items, Journal, Progress, RunError, RunFolder,
    SAVE_EVERY, Stage, StageSummary, UnitState, Urgency,
};

/// How often the coordinator counts what has ended.
const TICK: Duration = Duration::from_millis(100);

/// The longest time between two counts.
const MAX_TICK: Duration = Duration::from_secs(2);

/// Offered units that no process has leased, at most; units in work are not among them.
const WINDOW: usize = 1_000;

/// Time without an ended unit after which offered units are put into the queue again; it doubles until a unit ends.
const STALL: Duration = Duration::from_secs(10);
const MAX_STALL: Duration = Duration::from_secs(600);

/// Executes units in this process and in the workers that have joined the journal.
#[derive(Clone, Debug)]
pub struct SharedExecutor {
    folder: Arc<RunFolder>,
    options: ExecutorOptions,
    progress: Progress,
    interrupt: Interrupt,
    queue: Option<Arc<dyn UnitQueue>>,
}

impl SharedExecutor {
    pub fn new(
        folder: Arc<RunFolder>,
        options: ExecutorOptions,
        progress: Progress,
        interrupt: Interrupt,
    ) -> Self {
        Self {
            folder,
            options,
            progress,
            interrupt,
            queue: None,
        }
    }

    /// Distributes units through a queue. Without one, each process asks the journal for the next unit.
    #[must_use]
    pub fn with_queue(self, queue: Option<Arc<dyn UnitQueue>>) -> Self {
        Self { queue, ..self }
    }
}

#[async_trait]
impl Executor for SharedExecutor {
    async fn run(
        &self,
        stage: Arc<dyn Stage>,
        items: &dyn Items,
    ) -> Result<StageSummary, RunError> {
        let (name, journal) = (stage.name(), self.folder.journal());
        let todo = PendingItems::enqueue(journal, name, items, self.options.retry_failed)?;
        if !todo.is_empty() {
            let progress = self.progress.resumed(name, todo.settled(), todo.len());
            RoundRun::new(self, stage, todo, progress)?.run().await?;
        }
        journal.summary(name)
    }
}

/// A round that is being executed.
struct RoundRun<'a> {
    executor: &'a SharedExecutor,
    round: Round,
    /// The items that have not been offered.
    todo: PendingItems<'a>,
    /// Offered units that are not done, when they were last counted.
    open: usize,
    /// Those of them that no process has leased.
    free: usize,
    stall: Stall,
    /// The last request to retry failed units.
    retry: Option<Value>,
    /// Units of the stage that had ended when they were last counted.
    ended: Ended,
    /// Offered units on their way into the queue, whose server may be away; returns those that the queue knows as done.
    putting: JoinSet<Result<Vec<String>, RunError>>,
    units: UnitLoop,
    progress: SharedProgress,
    clock: StageClock,
    pace: PaceMeter,
    /// Why no new units start; the first reason is kept.
    reason: Option<RunError>,
}

impl<'a> RoundRun<'a> {
    fn new(
        executor: &'a SharedExecutor,
        stage: Arc<dyn Stage>,
        todo: PendingItems<'a>,
        progress: SharedProgress,
    ) -> Result<Self, RunError> {
        let folder = &executor.folder;
        let clock = StageClock::start(folder.clone(), stage.name())?;
        let spent = folder.journal().spent()?.micro_usd;
        let pace = PaceMeter::new(stage.name(), todo.len(), spent);
        let how = (&executor.options, executor.queue.is_some());
        let round = Round::new(folder, stage.as_ref(), how)?;
        let ended = Ended::of(folder.journal().summary(stage.name())?);
        let units = UnitLoop::new(
            folder.clone(),
            executor.options.clone(),
            executor.interrupt.clone(),
            stage,
            (round.clone(), executor.queue.clone()),
        )?;
        Ok(Self {
            executor,
            round,
            todo,
            open: 0,
            free: 0,
            stall: Stall::new(),
            retry: last_retry(folder.journal())?,
            ended,
            putting: JoinSet::new(),
            units,
            progress,
            clock,
            pace,
            reason: None,
        })
    }

    fn journal(&self) -> &'a Journal {
        let executor = self.executor;
        executor.folder.journal()
    }

    fn options(&self) -> &'a ExecutorOptions {
        let executor = self.executor;
        &executor.options
    }

    async fn run(mut self) -> Result<(), RunError> {
        let result = self.work().await;
        self.putting.shutdown().await;
        // Units that still run here are dropped and give their leases back; those of workers go on.
        self.units.shutdown().await;
        let journal = self.journal();
        Round::withdraw(journal)?;
        self.save()?;
        self.progress.finish();
        result?;
        self.reason.map_or(Ok(()), Err)
    }

    async fn work(&mut self) -> Result<(), RunError> {
        let interrupt = self.executor.interrupt.clone();
        let (options, journal) = (self.options(), self.journal());
        let left = time_left(journal, options.time_budget)?;
        // What a coordinator that was killed has offered.
        Round::withdraw(journal)?;
        if left == Some(Duration::ZERO) {
            self.stop(out_of_time(options))?;
        } else {
            self.offer_more()?;
            self.round.announce(journal)?;
        }
        let deadline = sleep_or_never(left);
        let grace_over = sleep_or_never(left.map(|left| left + options.grace));
        tokio::pin!(deadline, grace_over);
        let mut tick = tokio::time::interval(TICK);
        let mut save = tokio::time::interval(SAVE_EVERY);
        loop {
            if interrupt.requested() {
                self.stop(RunError::Interrupted)?;
            }
            if self.reason.is_none() {
                self.units.start_more()?;
            }
            let stopping = self.reason.is_some();
            let nothing_left = stopping || (self.open == 0 && self.todo.is_empty());
            if nothing_left && self.units.is_idle() {
                return Ok(());
            }
            tokio::select! {
                end = self.units.next() => self.settle(end)?,
                Some(put) = self.putting.join_next() => self.check_put(put)?,
                () = interrupt.wait(Urgency::Now) => return self.stop(RunError::Interrupted),
                () = interrupt.wait(Urgency::Finish), if !stopping => self.stop(RunError::Interrupted)?,
                () = &mut deadline, if !stopping => self.stop(out_of_time(options))?,
                () = &mut grace_over => return Ok(()),
                _ = tick.tick() => {
                    let start = Instant::now();
                    self.count()?;
                    tick.reset_after(rest_after(start.elapsed()));
                }
                _ = save.tick() => self.save()?,
            }
        }
    }

    /// Offers the next items, so that workers never wait for an offer, however many units are in work.
    fn offer_more(&mut self) -> Result<(), RunError> {
        let executor = self.executor;
        let window = executor
            .queue
            .as_ref()
            .map_or(WINDOW, |queue| queue.window());
        if self.free > window / 2 || self.todo.is_empty() {
            return Ok(());
        }
        let items = self.todo.take(window.saturating_sub(self.free));
        let journal = self.journal();
        journal.offer(&self.round.id, &self.round.stage, &items)?;
        self.open += items.len();
        self.free += items.len();
        self.put(items);
        Ok(())
    }

    /// Puts offered units into the queue, and does not wait for it: the run can be interrupted while its server is away.
    fn put(&mut self, items: Vec<String>) {
        let Some(queue) = self.executor.queue.clone() else {
            return;
        };
        let round = self.round.clone();
        self.putting
            .spawn(async move { queue.put(&round, &items).await });
    }

    /// Checks that the queue knows no unit as done whose output the journal lacks.
    fn check_put(
        &self,
        put: Result<Result<Vec<String>, RunError>, JoinError>,
    ) -> Result<(), RunError> {
        let put = put.map_err(|error| {
            RunError::Internal(format!("putting units into the queue failed: {error}"))
        });
        let (journal, stage) = (self.journal(), &self.round.stage);
        for item in put?? {
            if journal.state(stage, &item)? == Some(UnitState::Pending) {
                return Err(RunError::Conflict(format!(
                    "the queue has recorded that {item} of stage {stage} is done, and the journal has no output of it: was the \
                     journal restored from a backup? Start a new run with --run NAME, or delete the queue's data"
                )));
            }
        }
        Ok(())
    }

    /// Puts all offered units into the queue again if failed ones were offered again, or if nothing has ended for a while: the
    /// queue may have lost some.
    fn put_again(&mut self) -> Result<(), RunError> {
        if self.executor.queue.is_none() {
            return Ok(());
        }
        let retry = last_retry(self.journal())?;
        let is_retried = retry != self.retry;
        self.retry = retry;
        let is_stalled = self.putting.is_empty() && self.open > 0 && self.stall.is_over();
        if !(is_retried || is_stalled) {
            return Ok(());
        }
        let items = self.journal().offered(&self.round.id)?;
        tracing::debug!(
            stage = self.round.stage,
            "putting {} units into the queue again",
            items.len()
        );
        self.put(items);
        Ok(())
    }

    /// Counts what all processes have ended, offers more, and looks for a reason to stop that a worker has found.
    fn count(&mut self) -> Result<(), RunError> {
        let journal = self.journal();
        let counts = journal.sweep_offers(&self.round.id)?;
        let ended = match counts.is_partial {
            true => Ended::of(journal.summary(&self.round.stage)?).since(self.ended),
            false => Ended {
                done: counts.done,
                failed: counts.failed,
            },
        };
        self.ended.done += ended.done;
        self.ended.failed += ended.failed;
        for _ in 0..ended.done {
            self.progress.done();
        }
        for _ in 0..ended.failed {
            self.progress.failed();
        }
        self.pace.add(ended.done + ended.failed);
        self.progress.spent(journal.spent()?.micro_usd);
        self.open = usize::try_from(counts.open).unwrap_or(usize::MAX);
        self.free = usize::try_from(counts.free).unwrap_or(usize::MAX);
        if ended.done + ended.failed > 0 {
            self.stall = Stall::new();
        }
        if self.reason.is_some() {
            return Ok(());
        }
        if let Some(reason) = StopReason::recorded(journal, &self.round.id)? {
            return self.stop(reason.into());
        }
        self.offer_more()?;
        self.put_again()
    }

    fn settle(&mut self, end: Option<Result<AttemptEnd, RunError>>) -> Result<(), RunError> {
        match end.transpose()? {
            Some(AttemptEnd::Stop(reason)) => self.stop(reason.into()),
            // The round may be over; otherwise the next tick counts.
            Some(AttemptEnd::NotTaken) | None => Ok(()),
            Some(_) if self.units.is_idle() => self.count(),
            Some(_) => Ok(()),
        }
    }

    /// Records the time so far and what is in flight here, and removes workers that have died.
    fn save(&mut self) -> Result<(), RunError> {
        self.clock.save()?;
        let journal = self.journal();
        self.pace.record(journal, journal.spent()?.micro_usd)?;
        journal.remove_dead_members()?;
        let in_flight: InFlight = self.units.in_flight();
        in_flight.record(journal)?;
        self.progress.in_flight(in_flight);
        Ok(())
    }

    /// Withdraws what is offered; what is in work goes on.
    fn stop(&mut self, reason: RunError) -> Result<(), RunError> {
        if self.reason.is_some() {
            return Ok(());
        }
        self.reason = Some(reason);
        self.units.stop_taking();
        Round::withdraw(self.journal())
    }
}

/// The time between two counts: ten times what one took, since it takes longer with more units in work; [`MAX_TICK`] after a count
/// that had to wait for the server.
fn rest_after(count: Duration) -> Duration {
    count.saturating_mul(10).clamp(TICK, MAX_TICK)
}

/// Numbers of units that have ended.
#[derive(Clone, Copy)]
struct Ended {
    done: u64,
    failed: u64,
}

impl Ended {
    fn of(summary: StageSummary) -> Self {
        Self {
            done: summary.done,
            failed: summary.failed,
        }
    }

    /// What was added to `before`. Failed units that are retried are fewer than before.
    fn since(self, before: Self) -> Self {
        Self {
            done: self.done.saturating_sub(before.done),
            failed: self.failed.saturating_sub(before.failed),
        }
    }
}

/// Time without an ended unit.
struct Stall {
    since: Instant,
    wait: Duration,
}

impl Stall {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            wait: STALL,
        }
    }

    /// Whether the time is over; then the next one begins.
    fn is_over(&mut self) -> bool {
        let is_over = self.since.elapsed() >= self.wait;
        if is_over {
            self.since = Instant::now();
            self.wait = self.wait.saturating_mul(2).min(MAX_STALL);
        }
        is_over
    }
}

/// A name that no other round has.
fn new_id() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::path::PathBuf;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use serde_json::json;

    use super::memory_queue::MemoryQueue;
    use super::*;
    use crate::conformance;
    use crate::conformance::Factory;
    use crate::{Failure, FailureKind};

    struct Shared;

    impl Factory for Shared {
        type Executor = SharedExecutor;

        fn make(
            &self,
            folder: &Arc<RunFolder>,
            options: ExecutorOptions,
            interrupt: &Interrupt,
        ) -> SharedExecutor {
            SharedExecutor::new(
                folder.clone(),
                options,
                Progress::hidden(),
                interrupt.clone(),
            )
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn conforms() {
        conformance::all(&Shared).await;
    }

    /// Executors of one run folder share a queue.
    #[derive(Default)]
    struct Queued(Mutex<HashMap<PathBuf, MemoryQueue>>);

    impl Queued {
        fn queue(&self, folder: &RunFolder) -> MemoryQueue {
            let mut queues = self.0.lock().unwrap();
            queues.entry(folder.root().to_owned()).or_default().clone()
        }
    }

    impl Factory for Queued {
        type Executor = SharedExecutor;

        fn make(
            &self,
            folder: &Arc<RunFolder>,
            options: ExecutorOptions,
            interrupt: &Interrupt,
        ) -> SharedExecutor {
            let executor = Shared.make(folder, options, interrupt);
            executor.with_queue(Some(Arc::new(self.queue(folder))))
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn conforms_with_a_queue() {
        conformance::all(&Queued::default()).await;
    }

    /// Gives the number of the item back.
    struct Echo;

    #[async_trait]
    impl Stage for Echo {
        fn name(&self) -> &'static str {
            "s"
        }

        async fn run(&self, item: &str) -> Result<Value, Failure> {
            Ok(json!(item))
        }
    }

    fn numbered(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("item-{number}")).collect()
    }

    /// A unit ends once as many are in work as the barrier waits for.
    struct Together(tokio::sync::Barrier);

    #[async_trait]
    impl Stage for Together {
        fn name(&self) -> &'static str {
            "s"
        }

        async fn run(&self, item: &str) -> Result<Value, Failure> {
            self.0.wait().await;
            Ok(json!(item))
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn units_in_work_do_not_count_toward_the_window() {
        let (root, queued) = (tempfile::tempdir().unwrap(), Queued::default());
        let folder = Arc::new(RunFolder::open(root.path(), "").unwrap());
        queued.queue(&folder).set_window(2);
        let options = ExecutorOptions {
            concurrency: Some(8),
            ..ExecutorOptions::default()
        };
        let executor = queued.make(&folder, options, &Interrupt::new());
        let (stage, items) = (Together(tokio::sync::Barrier::new(8)), numbered(8));
        let run = executor.run(Arc::new(stage), &items);
        let run = tokio::time::timeout(Duration::from_secs(30), run).await;
        let summary = run.expect("eight units are in work at once").unwrap();
        assert_eq!((summary.done, summary.pending), (8, 0));
    }

    /// The unit `item-1` fails for good once; `item-0` waits until it is told to go on.
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
            if item == "item-0" {
                self.gate.notified().await;
            } else if !self.has_failed.swap(true, Ordering::Relaxed) {
                return Err(Failure::new(FailureKind::Item, "broken"));
            }
            Ok(json!(item))
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_failed_unit_that_is_retried_is_put_into_the_queue_at_once() {
        let (root, queued) = (tempfile::tempdir().unwrap(), Queued::default());
        let folder = Arc::new(RunFolder::open(root.path(), "").unwrap());
        let gate = Arc::new(tokio::sync::Notify::new());
        let stage = Weak {
            gate: gate.clone(),
            has_failed: AtomicBool::new(false),
        };
        let options = ExecutorOptions {
            concurrency: Some(2),
            ..ExecutorOptions::default()
        };
        let executor = queued.make(&folder, options, &Interrupt::new());
        let run = tokio::spawn(async move { executor.run(Arc::new(stage), &numbered(2)).await });
        let journal = folder.journal();
        let wait_for = async |state| {
            while journal.state("s", "item-1").unwrap() != Some(state) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        wait_for(UnitState::Failed).await;
        let retried = retry_failed(journal, Some("s"), None).unwrap();
        assert!(retried[0].offered);
        // Otherwise it is put when the time without an ended unit is over.
        let done = tokio::time::timeout(STALL / 2, wait_for(UnitState::Done)).await;
        assert!(done.is_ok(), "the unit is not in the queue");
        gate.notify_one();
        let summary = run.await.unwrap().unwrap();
        assert_eq!((summary.done, summary.failed), (2, 0));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn units_that_the_queue_loses_are_put_again() {
        let (root, queued) = (tempfile::tempdir().unwrap(), Queued::default());
        let folder = Arc::new(RunFolder::open(root.path(), "").unwrap());
        let queue = queued.queue(&folder);
        queue.lose(3);
        let executor = queued.make(&folder, ExecutorOptions::default(), &Interrupt::new());
        let since = Instant::now();
        let summary = executor.run(Arc::new(Echo), &numbered(20)).await.unwrap();
        assert_eq!((summary.done, summary.pending), (20, 0));
        assert!(since.elapsed() >= STALL, "{:?}", since.elapsed());
        assert_eq!(queue.open(), 0, "nothing is left in the queue");
        let units = folder.journal().units("s").unwrap();
        assert!(units.iter().all(|unit| unit.attempts == 1));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_queue_that_knows_of_more_than_the_journal_stops_the_run() {
        let queued = Queued::default();
        let (before, after) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let folder = Arc::new(RunFolder::open(before.path(), "").unwrap());
        let queue = queued.queue(&folder);
        let make = |folder: &Arc<RunFolder>| {
            let executor = Shared.make(folder, ExecutorOptions::default(), &Interrupt::new());
            executor.with_queue(Some(Arc::new(queue.clone())))
        };
        make(&folder)
            .run(Arc::new(Echo), &numbered(2))
            .await
            .unwrap();
        // The journal is lost, and the queue is not.
        let folder = Arc::new(RunFolder::open(after.path(), "").unwrap());
        let error = make(&folder).run(Arc::new(Echo), &numbered(2)).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("the journal has no output of it"), "{error}");
    }
}
