//! The local executor: units on tokio as admission allows, leases, retries with backoff, and Ctrl-C.

mod admission;
mod clock;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use clock::{SAVE_EVERY, StageClock, time_spent};

pub(crate) use self::admission::Admission;
use self::worker::{UnitEnd, Worker};
pub(crate) use self::worker::{log_failure, log_outage, make_attempt, reason_to_stop, wait_after};
use super::pace::PaceMeter;
use super::pending_items::PendingItems;
use super::progress::SharedProgress;
use super::{
    Bottleneck, BudgetCap, Executor, FoldedLog, InFlight, Interrupt, Items, Journal, Progress,
    Recipe, RequestCounts, RetryFailed, RunError, RunFolder, Stage, StageSummary, Urgency,
};

/// How units are executed.
#[derive(Clone, Debug)]
pub struct ExecutorOptions {
    /// Number of units that are in work at the same time; `None`: as many as endpoint, cores, memory and budget allow.
    pub concurrency: Option<usize>,
    /// Budget of the calls of the units.
    pub budget: BudgetCap,
    /// Attempts at a unit in one process before it counts as failed, at least 1.
    pub attempts: u32,
    /// Maximum duration of an attempt; `None`: as long as it takes.
    pub unit_limit: Option<Duration>,
    /// Duration of a lease, which is renewed while the unit runs.
    pub lease: Duration,
    /// Wait before the second attempt; it doubles with each further attempt.
    pub backoff: Duration,
    /// Maximum wait between two attempts. If an endpoint asks for more, the unit fails.
    pub max_wait: Duration,
    /// Time budget of the whole run: all stages, over all restarts.
    pub time_budget: Option<Duration>,
    /// Time for work in flight to finish once the time budget is used up.
    pub grace: Duration,
    /// Which units that failed finally in an earlier process are retried.
    pub retry_failed: RetryFailed,
    /// Seed of the backoff jitter.
    pub seed: u64,
}

impl Default for ExecutorOptions {
    fn default() -> Self {
        Self {
            concurrency: None,
            budget: BudgetCap::default(),
            attempts: 4,
            unit_limit: None,
            lease: Duration::from_secs(120),
            backoff: Duration::from_secs(1),
            max_wait: Duration::from_secs(600),
            time_budget: None,
            grace: Duration::from_secs(30),
            retry_failed: RetryFailed::ExceptBadItems,
            seed: 0,
        }
    }
}

impl ExecutorOptions {
    /// The options that a recipe specifies.
    pub fn of(recipe: &Recipe) -> Self {
        Self {
            concurrency: recipe.rollout.fixed_concurrency(),
            budget: BudgetCap::of(&recipe.budget),
            attempts: recipe.rollout.attempts.max(1),
            unit_limit: Some(recipe.rollout.unit_limit()),
            time_budget: recipe.budget.time(),
            seed: recipe.seed,
            ..Self::default()
        }
    }
}

/// Number of CPU cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Executes units in this process and records them in the journal, so that a later process can continue.
#[derive(Clone, Debug)]
pub struct LocalExecutor {
    folder: Arc<RunFolder>,
    options: ExecutorOptions,
    progress: Progress,
    interrupt: Interrupt,
}

impl LocalExecutor {
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
        }
    }
}

#[async_trait]
impl Executor for LocalExecutor {
    async fn run(
        &self,
        stage: Arc<dyn Stage>,
        items: &dyn Items,
    ) -> Result<StageSummary, RunError> {
        let (name, journal) = (stage.name(), self.folder.journal());
        let todo = PendingItems::enqueue(journal, name, items, self.options.retry_failed)?;
        if !todo.is_empty() {
            let progress = self.progress.resumed(name, todo.settled(), todo.len());
            StageRun::new(self, stage, todo, progress)?.run().await?;
        }
        journal.summary(name)
    }
}

/// A stage that is being executed.
struct StageRun<'a> {
    executor: &'a LocalExecutor,
    stage: Arc<dyn Stage>,
    todo: PendingItems<'a>,
    running: JoinSet<Result<UnitEnd, RunError>>,
    progress: SharedProgress,
    clock: StageClock,
    pace: PaceMeter,
    admission: Admission,
    /// Requests of the units.
    requests: watch::Receiver<RequestCounts>,
    /// What keeps the next unit from starting.
    limited_by: Option<Bottleneck>,
    /// Tells workers that wait for their next attempt to stop waiting.
    stop: watch::Sender<bool>,
    /// Why no new units start; the first reason is kept.
    reason: Option<RunError>,
    /// Failures of units.
    failures: Arc<FoldedLog>,
}

impl<'a> StageRun<'a> {
    fn new(
        executor: &'a LocalExecutor,
        stage: Arc<dyn Stage>,
        todo: PendingItems<'a>,
        progress: SharedProgress,
    ) -> Result<Self, RunError> {
        let clock = StageClock::start(executor.folder.clone(), stage.name())?;
        let (options, spent) = (&executor.options, executor.folder.journal().spent()?);
        let stage_name = stage.name();
        Ok(Self {
            admission: Admission::new(options.concurrency, options.budget, spent),
            requests: executor.folder.requests().subscribe(),
            limited_by: None,
            pace: PaceMeter::new(stage_name, todo.len(), spent.micro_usd),
            executor,
            stage,
            todo,
            running: JoinSet::new(),
            progress,
            clock,
            stop: watch::Sender::new(false),
            reason: None,
            failures: Arc::new(FoldedLog::new(stage_name)),
        })
    }

    async fn run(mut self) -> Result<(), RunError> {
        let result = self.work().await;
        // Units that still run are dropped here and release their leases.
        self.running.shutdown().await;
        self.save()?;
        self.progress.finish();
        result?;
        self.reason.map_or(Ok(()), Err)
    }

    async fn work(&mut self) -> Result<(), RunError> {
        let interrupt = self.executor.interrupt.clone();
        let journal = self.executor.folder.journal();
        let left = time_left(journal, self.executor.options.time_budget)?;
        if left == Some(Duration::ZERO) {
            self.stop(out_of_time(&self.executor.options));
        }
        let deadline = sleep_or_never(left);
        let grace_over = sleep_or_never(left.map(|left| left + self.executor.options.grace));
        tokio::pin!(deadline, grace_over);
        let mut save = tokio::time::interval(SAVE_EVERY);
        loop {
            self.start_more()?;
            if self.running.is_empty() {
                return Ok(());
            }
            let stopping = self.reason.is_some();
            tokio::select! {
                Some(end) = self.running.join_next() => self.settle(end)?,
                () = interrupt.wait(Urgency::Now) => {
                    self.stop(RunError::Interrupted);
                    return Ok(());
                }
                () = interrupt.wait(Urgency::Finish), if !stopping => self.stop(RunError::Interrupted),
                () = &mut deadline, if !stopping => self.stop(out_of_time(&self.executor.options)),
                () = &mut grace_over => return Ok(()),
                Ok(()) = self.requests.changed(), if self.limited_by.is_some() => {}
                _ = save.tick() => self.save()?,
            }
        }
    }

    /// Records the time so far and what is in flight.
    fn save(&mut self) -> Result<(), RunError> {
        self.clock.save()?;
        let journal = self.executor.folder.journal();
        self.pace.record(journal, journal.spent()?.micro_usd)?;
        let in_flight = InFlight {
            stage: self.stage.name().to_owned(),
            units: self.running.len(),
            requests: self.requests.borrow().in_flight,
            limited_by: self.limited_by,
        };
        in_flight.record(self.executor.folder.journal())?;
        self.progress.in_flight(in_flight);
        Ok(())
    }

    /// Starts units in item order while admission allows it.
    fn start_more(&mut self) -> Result<(), RunError> {
        if self.executor.interrupt.requested() {
            self.stop(RunError::Interrupted);
        }
        while self.reason.is_none() && self.may_start()? {
            let Some(item) = self.todo.next() else {
                break;
            };
            let worker = Worker::new(
                self.executor,
                self.stage.clone(),
                item,
                self.stop.subscribe(),
                self.failures.clone(),
            );
            self.running.spawn(worker.work());
        }
        Ok(())
    }

    fn may_start(&mut self) -> Result<bool, RunError> {
        let journal = self.executor.folder.journal();
        let (units, requests) = (self.running.len(), *self.requests.borrow_and_update());
        self.limited_by = match self.todo.is_empty() {
            true => None,
            false => self
                .admission
                .refuses(units, requests, || journal.spent())?,
        };
        Ok(self.limited_by.is_none())
    }

    fn settle(
        &mut self,
        end: Result<Result<UnitEnd, RunError>, tokio::task::JoinError>,
    ) -> Result<(), RunError> {
        let spent = self.executor.folder.journal().spent()?;
        self.progress.spent(spent.micro_usd);
        // The worker catches panics of the stage, so a panic here is a bug in the executor.
        match end
            .map_err(|error| RunError::Internal(format!("a worker task failed: {error}")))??
        {
            UnitEnd::Done => {
                self.admission.done();
                self.pace.add(1);
                self.progress.done();
            }
            UnitEnd::Failed => {
                self.pace.add(1);
                self.progress.failed();
            }
            UnitEnd::Pending => {}
            UnitEnd::Stop(reason) => self.stop(reason),
        }
        Ok(())
    }

    fn stop(&mut self, reason: RunError) {
        self.reason.get_or_insert(reason);
        self.limited_by = None;
        self.stop.send_replace(true);
    }
}

/// What is left of the time budget of a run; `None` if there is no budget.
pub(crate) fn time_left(
    journal: &Journal,
    budget: Option<Duration>,
) -> Result<Option<Duration>, RunError> {
    let Some(budget) = budget else {
        return Ok(None);
    };
    Ok(Some(budget.saturating_sub(time_spent(journal)?)))
}

pub(crate) fn out_of_time(options: &ExecutorOptions) -> RunError {
    let minutes = options
        .time_budget
        .map_or(0.0, |budget| budget.as_secs_f64() / 60.0);
    RunError::Budget(format!(
        "the time budget is used up: `budget.minutes` allows {minutes} minutes; raise it to continue"
    ))
}

pub(crate) async fn sleep_or_never(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;
    use crate::conformance::Factory;

    struct Local;

    impl Factory for Local {
        type Executor = LocalExecutor;

        fn make(
            &self,
            folder: &Arc<RunFolder>,
            options: ExecutorOptions,
            interrupt: &Interrupt,
        ) -> LocalExecutor {
            LocalExecutor::new(
                folder.clone(),
                options,
                Progress::hidden(),
                interrupt.clone(),
            )
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn conforms() {
        conformance::all(&Local).await;
    }
}
