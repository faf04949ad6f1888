//! The shared executor: the coordinator of a run offers the units of a stage in its journal, and works on them together
//! with other processes.
//!
//! The journal decides everything that processes have to agree on: who has a unit, how often it has failed, what may be
//! spent. The coordinator alone decides which units are offered and when the round ends.

mod announcement;
mod unit_loop;
mod worker;

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;

pub use self::announcement::Round;
use self::announcement::StopReason;
use self::unit_loop::{AttemptEnd, UnitLoop};
pub use self::worker::{Member, WorkEnd, WorkerSession};
use super::local::{StageClock, out_of_time, sleep_or_never, time_left};
use super::progress::SharedProgress;
use super::{
    Executor, ExecutorOptions, InFlight, Interrupt, Items, Journal, Progress, RunError, RunFolder,
    SAVE_EVERY, Stage, StageSummary, Urgency,
};

/// How often the coordinator counts what has ended.
const TICK: Duration = Duration::from_millis(100);

/// Units that are offered at the same time.
const WINDOW: usize = 2_000;

/// Executes units in this process and in the workers that have joined the journal.
#[derive(Clone, Debug)]
pub struct SharedExecutor {
    folder: Arc<RunFolder>,
    options: ExecutorOptions,
    progress: Progress,
    interrupt: Interrupt,
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
        }
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
        let names = || (0..items.len()).map(|number| items.get(number));
        journal.enqueue(name, names())?;
        journal.retry_failed(name, self.options.retry_failed)?;
        let (pending, settled) = journal.pending(name, names())?;
        if !pending.is_empty() {
            let progress = self.progress.stage(name, settled + pending.len() as u64);
            progress.resume(settled);
            let todo = Todo {
                items,
                pending: pending.into(),
            };
            let result = RoundRun::new(self, stage, todo, Arc::new(progress))?
                .run()
                .await;
            result?;
        }
        journal.summary(name)
    }
}

/// The items that have not been offered.
struct Todo<'a> {
    items: &'a dyn Items,
    /// Numbers of the items.
    pending: VecDeque<usize>,
}

/// A round that is being executed.
struct RoundRun<'a> {
    executor: &'a SharedExecutor,
    round: Round,
    todo: Todo<'a>,
    /// Offered units that are not done, when they were last counted.
    open: usize,
    units: UnitLoop,
    progress: SharedProgress,
    clock: StageClock,
    /// Why no new units start; the first reason is kept.
    reason: Option<RunError>,
}

impl<'a> RoundRun<'a> {
    fn new(
        executor: &'a SharedExecutor,
        stage: Arc<dyn Stage>,
        todo: Todo<'a>,
        progress: SharedProgress,
    ) -> Result<Self, RunError> {
        let folder = &executor.folder;
        let clock = StageClock::start(folder.clone(), stage.name())?;
        let round = Round::new(folder, stage.as_ref(), &executor.options)?;
        let units = UnitLoop::new(
            folder.clone(),
            executor.options.clone(),
            executor.interrupt.clone(),
            stage,
            round.clone(),
        )?;
        Ok(Self {
            executor,
            round,
            todo,
            open: 0,
            units,
            progress,
            clock,
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
        journal.clear_offers()?;
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
            let nothing_left = stopping || (self.open == 0 && self.todo.pending.is_empty());
            if nothing_left && self.units.is_empty() {
                return Ok(());
            }
            tokio::select! {
                end = self.units.next() => self.settle(end)?,
                () = interrupt.wait(Urgency::Now) => return self.stop(RunError::Interrupted),
                () = interrupt.wait(Urgency::Finish), if !stopping => self.stop(RunError::Interrupted)?,
                () = &mut deadline, if !stopping => self.stop(out_of_time(options))?,
                () = &mut grace_over => return Ok(()),
                _ = tick.tick() => self.count()?,
                _ = save.tick() => self.save()?,
            }
        }
    }

    /// Offers the next items, so that workers never wait for an offer.
    fn offer_more(&mut self) -> Result<(), RunError> {
        if self.open > WINDOW / 2 || self.todo.pending.is_empty() {
            return Ok(());
        }
        let count = (WINDOW - self.open).min(self.todo.pending.len());
        let all = self.todo.items;
        let numbers = self.todo.pending.drain(..count);
        let items: Vec<String> = numbers.map(|number| all.get(number).into_owned()).collect();
        let journal = self.journal();
        journal.offer(&self.round.id, &self.round.stage, &items)?;
        self.open += count;
        Ok(())
    }

    /// Counts what all processes have ended, offers more, and looks for a reason to stop that a worker has found.
    fn count(&mut self) -> Result<(), RunError> {
        let journal = self.journal();
        let counts = journal.sweep_offers(&self.round.id)?;
        for _ in 0..counts.done {
            self.progress.done();
        }
        for _ in 0..counts.failed {
            self.progress.failed();
        }
        self.progress.spent(journal.spent()?.micro_usd);
        self.open = usize::try_from(counts.open).unwrap_or(usize::MAX);
        if self.reason.is_some() {
            return Ok(());
        }
        if let Some(reason) = StopReason::recorded(journal, &self.round.id)? {
            return self.stop(reason.into());
        }
        self.offer_more()
    }

    fn settle(&mut self, end: Option<Result<AttemptEnd, RunError>>) -> Result<(), RunError> {
        match end.transpose()? {
            Some(AttemptEnd::Stop(reason)) => self.stop(reason.into()),
            // The round may be over; otherwise the next tick counts.
            Some(AttemptEnd::Ended | AttemptEnd::Pending) if self.units.is_empty() => self.count(),
            Some(AttemptEnd::Ended | AttemptEnd::Pending) | None => Ok(()),
        }
    }

    /// Records the time so far and what is in flight here, and removes workers that have died.
    fn save(&self) -> Result<(), RunError> {
        self.clock.save()?;
        let journal = self.journal();
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
        Round::withdraw(self.journal())
    }
}

/// A name that no other round has.
fn new_id() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

/// Unix time in milliseconds.
fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance;
    use crate::conformance::Factory;

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
}
