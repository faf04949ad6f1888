//! The local executor: tokio, bounded concurrency, leases, retries with back-off, Ctrl-C.

mod clock;
mod worker;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use clock::StageClock;

use self::worker::{UnitEnd, Worker};
use super::progress::SharedProgress;
use super::{
    Executor, Interrupt, Progress, Recipe, RetryFailed, RunError, RunFolder, Stage, StageSummary,
    UnitState, Urgency,
};

/// How units are executed.
#[derive(Clone, Debug)]
pub struct ExecutorOptions {
    /// Units at a time, at least 1.
    pub concurrency: usize,
    /// Attempts at a unit within one process before it counts as failed, at least 1.
    pub attempts: u32,
    /// How long a unit is taken for; renewed while it runs.
    pub lease: Duration,
    /// Wait before the second attempt; doubles with each further one.
    pub backoff: Duration,
    /// Longest wait between two attempts. An endpoint that asks for more fails the unit.
    pub longest_wait: Duration,
    /// Time of the whole run, all stages, over all restarts.
    pub time_budget: Option<Duration>,
    /// What is in flight when the time is used up gets this long to finish.
    pub grace: Duration,
    /// Which units that failed for good in an earlier process are tried anew.
    pub retry_failed: RetryFailed,
    /// Seed of the jitter.
    pub seed: u64,
}

impl Default for ExecutorOptions {
    fn default() -> Self {
        Self {
            concurrency: cores(),
            attempts: 4,
            lease: Duration::from_secs(120),
            backoff: Duration::from_secs(1),
            longest_wait: Duration::from_secs(600),
            time_budget: None,
            grace: Duration::from_secs(30),
            retry_failed: RetryFailed::Ours,
            seed: 0,
        }
    }
}

impl ExecutorOptions {
    /// As the recipe asks.
    pub fn of(recipe: &Recipe) -> Self {
        let minutes = recipe.budget.minutes;
        Self {
            concurrency: match recipe.rollout.concurrency {
                0 => cores(),
                asked => asked,
            },
            attempts: recipe.rollout.attempts.max(1),
            time_budget: minutes.and_then(|m| Duration::try_from_secs_f64(m * 60.0).ok()),
            seed: recipe.seed,
            ..Self::default()
        }
    }
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Does units in this process; the journal in the run folder makes them survive it.
#[derive(Clone, Debug)]
pub struct LocalExecutor {
    folder: Arc<RunFolder>,
    options: ExecutorOptions,
    progress: Progress,
    interrupt: Interrupt,
}

impl LocalExecutor {
    /// An executor on that folder.
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

    /// The same executor with another number of units at a time (at least 1).
    pub fn with_concurrency(mut self, concurrency: usize) -> Self {
        self.options.concurrency = concurrency.max(1);
        self
    }

    /// What is left to do, in item order, each once; and how many are done.
    fn todo(&self, stage: &str, items: &[String]) -> Result<(VecDeque<String>, u64), RunError> {
        let states: HashMap<String, UnitState> =
            self.folder.journal().states(stage)?.into_iter().collect();
        let distinct: HashSet<&String> = items.iter().collect();
        let mut seen = HashSet::new();
        let todo: VecDeque<String> = items
            .iter()
            .filter(|item| states.get(*item) == Some(&UnitState::Pending) && seen.insert(*item))
            .cloned()
            .collect();
        let settled = distinct.len() - todo.len();
        Ok((todo, settled as u64))
    }
}

#[async_trait]
impl Executor for LocalExecutor {
    async fn run(&self, stage: Arc<dyn Stage>, items: &[String]) -> Result<StageSummary, RunError> {
        let (name, journal) = (stage.name(), self.folder.journal());
        journal.enqueue(name, items)?;
        journal.retry_failed(name, self.options.retry_failed)?;
        let (todo, settled) = self.todo(name, items)?;
        if !todo.is_empty() {
            let progress = self.progress.stage(name, settled + todo.len() as u64);
            progress.resume(settled);
            let result = Drive::new(self, stage, todo, Arc::new(progress))?
                .drive()
                .await;
            result?;
        }
        journal.summary(name)
    }
}

/// One stage under way.
struct Drive<'a> {
    executor: &'a LocalExecutor,
    stage: Arc<dyn Stage>,
    todo: VecDeque<String>,
    running: JoinSet<Result<UnitEnd, RunError>>,
    progress: SharedProgress,
    clock: StageClock,
    /// Tells workers that wait for another attempt to give up.
    stop: watch::Sender<bool>,
    /// Why no new work is started; the first reason wins.
    reason: Option<RunError>,
}

impl<'a> Drive<'a> {
    fn new(
        executor: &'a LocalExecutor,
        stage: Arc<dyn Stage>,
        todo: VecDeque<String>,
        progress: SharedProgress,
    ) -> Result<Self, RunError> {
        let clock = StageClock::start(executor.folder.clone(), stage.name())?;
        Ok(Self {
            executor,
            stage,
            todo,
            running: JoinSet::new(),
            progress,
            clock,
            stop: watch::Sender::new(false),
            reason: None,
        })
    }

    async fn drive(mut self) -> Result<(), RunError> {
        let result = self.work().await;
        // Whatever still runs is dropped here, and gives its lease back.
        self.running.shutdown().await;
        self.progress.finish();
        self.clock.save()?;
        result?;
        self.reason.map_or(Ok(()), Err)
    }

    async fn work(&mut self) -> Result<(), RunError> {
        let interrupt = self.executor.interrupt.clone();
        let left = self.time_left()?;
        if left == Some(Duration::ZERO) {
            self.stop(out_of_time(self.executor));
        }
        let deadline = sleep_or_never(left);
        let dropped_at = sleep_or_never(left.map(|left| left + self.executor.options.grace));
        tokio::pin!(deadline, dropped_at);
        let mut save = tokio::time::interval(clock::SAVE_EVERY);
        loop {
            self.start_more();
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
                () = &mut deadline, if !stopping => self.stop(out_of_time(self.executor)),
                () = &mut dropped_at => return Ok(()),
                _ = save.tick() => self.clock.save()?,
            }
        }
    }

    /// Start units in item order while there is room.
    fn start_more(&mut self) {
        while self.reason.is_none()
            && !self.executor.interrupt.requested()
            && self.running.len() < self.executor.options.concurrency.max(1)
        {
            let Some(item) = self.todo.pop_front() else {
                return;
            };
            let worker = Worker::new(
                self.executor,
                self.stage.clone(),
                item,
                self.stop.subscribe(),
            );
            self.running.spawn(worker.work());
        }
        if self.executor.interrupt.requested() {
            self.stop(RunError::Interrupted);
        }
    }

    fn settle(
        &mut self,
        end: Result<Result<UnitEnd, RunError>, tokio::task::JoinError>,
    ) -> Result<(), RunError> {
        // Panics of a stage are caught by the worker; what arrives here is a bug of ours.
        match end.map_err(|error| RunError::Internal(format!("a worker died: {error}")))?? {
            UnitEnd::Done => self.progress.done(),
            UnitEnd::Failed => self.progress.failed(),
            UnitEnd::Pending => {}
            UnitEnd::Stop(reason) => self.stop(reason),
        }
        Ok(())
    }

    fn stop(&mut self, reason: RunError) {
        self.reason.get_or_insert(reason);
        self.stop.send_replace(true);
    }

    fn time_left(&self) -> Result<Option<Duration>, RunError> {
        let Some(budget) = self.executor.options.time_budget else {
            return Ok(None);
        };
        let spent = clock::spent(self.executor.folder.journal())?;
        Ok(Some(budget.saturating_sub(spent)))
    }
}

fn out_of_time(executor: &LocalExecutor) -> RunError {
    let minutes = executor
        .options
        .time_budget
        .map_or(0.0, |budget| budget.as_secs_f64() / 60.0);
    RunError::Budget(format!(
        "the time is used up: {minutes} minutes allowed by `budget.minutes`; raise it to go on"
    ))
}

async fn sleep_or_never(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::conformance::{self, Factory};

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
