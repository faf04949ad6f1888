//! One unit: lease, attempts, back-off, commit.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::FutureExt;
use serde_json::Value;
use tokio::sync::watch;

use super::{ExecutorOptions, LocalExecutor};
use crate::id::Digest;
use crate::run::{Failure, FailureKind, RunError, RunFolder, Stage};

/// What became of a unit.
pub(super) enum UnitEnd {
    /// Committed, by us or by another holder of the lease.
    Done,
    /// Failed for good.
    Failed,
    /// To be tried again, by a later command or once what it waits for is there.
    Pending,
    /// To be tried by a later command; nothing new may start.
    Stop(RunError),
}

/// Does one unit.
pub(super) struct Worker {
    folder: Arc<RunFolder>,
    options: ExecutorOptions,
    stage: Arc<dyn Stage>,
    item: String,
    stop: watch::Receiver<bool>,
}

impl Worker {
    pub(super) fn new(
        executor: &LocalExecutor,
        stage: Arc<dyn Stage>,
        item: String,
        stop: watch::Receiver<bool>,
    ) -> Self {
        Self {
            folder: executor.folder.clone(),
            options: executor.options.clone(),
            stage,
            item,
            stop,
        }
    }

    /// Attempts until the unit is done, failed, or the stage stops.
    pub(super) async fn work(mut self) -> Result<UnitEnd, RunError> {
        let folder = self.folder.clone();
        let (journal, stage, item) = (folder.journal(), self.stage.name(), self.item.clone());
        for attempt in 1.. {
            let Some(lease) = self.take().await? else {
                return self.as_left_by_others();
            };
            let failure = match self.attempt(lease).await? {
                Ok(output) => {
                    journal.complete(stage, &item, &output)?;
                    return Ok(UnitEnd::Done);
                }
                Err(failure) if failure.kind == FailureKind::Deferred => {
                    return Ok(UnitEnd::Pending);
                }
                Err(failure) => failure,
            };
            tracing::debug!(stage, item, attempt, kind = ?failure.kind, "attempt failed: {failure}");
            let wait = wait_after(&self.options, &item, attempt, &failure);
            let stops = reason_to_stop(&failure);
            let last = wait.is_none() && failure.kind != FailureKind::Budget;
            journal.fail(stage, &item, &failure, last)?;
            match (stops, wait) {
                (Some(reason), _) => return Ok(UnitEnd::Stop(reason)),
                (None, None) => {
                    tracing::warn!(stage, item, kind = ?failure.kind, "failed: {failure}");
                    return Ok(UnitEnd::Failed);
                }
                (None, Some(wait)) if self.stopped_during(wait).await => {
                    return Ok(UnitEnd::Pending);
                }
                (None, Some(_)) => {}
            }
        }
        Ok(UnitEnd::Pending)
    }

    /// Take the unit, waiting while another holder's lease lives; `None` when it is not pending.
    async fn take(&mut self) -> Result<Option<Lease>, RunError> {
        loop {
            if let Some(lease) = Lease::take(self)? {
                return Ok(Some(lease));
            }
            let Some(until) = self
                .folder
                .journal()
                .leased_until(self.stage.name(), &self.item)?
            else {
                return Ok(None);
            };
            let wait = Duration::from_secs(until.saturating_sub(now()).clamp(0, 1) as u64);
            if self
                .stopped_during(wait.max(Duration::from_millis(100)))
                .await
            {
                return Ok(None);
            }
        }
    }

    fn as_left_by_others(&self) -> Result<UnitEnd, RunError> {
        use crate::run::UnitState::*;
        let journal = self.folder.journal();
        Ok(match journal.state(self.stage.name(), &self.item)? {
            Some(Done) => UnitEnd::Done,
            Some(Failed) => UnitEnd::Failed,
            Some(Pending) | None => UnitEnd::Pending,
        })
    }

    /// One attempt, the lease renewed while it runs. A panic is a failure of ours.
    async fn attempt(&self, mut lease: Lease) -> Result<Result<Value, Failure>, RunError> {
        let running = AssertUnwindSafe(self.stage.run(&self.item)).catch_unwind();
        tokio::pin!(running);
        loop {
            tokio::select! {
                end = &mut running => {
                    return Ok(end.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))));
                }
                () = tokio::time::sleep(self.options.lease / 3) => lease.renew()?,
            }
        }
    }

    /// Waits; `true` when the stage stopped meanwhile.
    async fn stopped_during(&mut self, wait: Duration) -> bool {
        tokio::select! {
            // An error says that the stage is gone.
            _ = self.stop.wait_for(|stop| *stop) => true,
            () = tokio::time::sleep(wait) => false,
        }
    }
}

/// How long to wait before the next attempt; `None` when there is none.
fn wait_after(
    options: &ExecutorOptions,
    item: &str,
    attempt: u32,
    failure: &Failure,
) -> Option<Duration> {
    if !failure.retryable || attempt >= options.attempts {
        return None;
    }
    let doubled = options.backoff.saturating_mul(1 << (attempt - 1).min(16));
    let seed = Digest::of_json(&(options.seed, item, attempt)).seed();
    // Between half and all of it, so that units that failed together come back apart.
    let jitter = 0.5 + (seed as f64 / u64::MAX as f64) / 2.0;
    let wait = doubled.min(options.longest_wait).mul_f64(jitter);
    let asked = failure.retry_after.unwrap_or_default();
    (asked <= options.longest_wait).then(|| wait.max(asked))
}

/// Failures after which nothing new may start.
fn reason_to_stop(failure: &Failure) -> Option<RunError> {
    match failure.kind {
        FailureKind::Budget => Some(RunError::Budget(failure.detail.clone())),
        // With a refused key every other unit would fail the same way.
        FailureKind::Endpoint if failure.detail.starts_with("unauthorized") => {
            Some(RunError::Endpoint(failure.detail.clone()))
        }
        _ => None,
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    Failure::new(FailureKind::Internal, format!("a bug of ours: {text}"))
}

/// Seconds since 1970, the journal's clock.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

/// A unit taken. Dropping gives it back, unless it was committed or taken over meanwhile.
struct Lease {
    folder: Arc<RunFolder>,
    stage: &'static str,
    item: String,
    seconds: i64,
    until: i64,
}

impl Lease {
    fn take(worker: &Worker) -> Result<Option<Self>, RunError> {
        let seconds = worker.options.lease.as_secs().max(1) as i64;
        let (stage, item, now) = (worker.stage.name(), worker.item.clone(), now());
        let taken = worker.folder.journal().lease(stage, &item, now, seconds)?;
        Ok(taken.then(|| Self {
            folder: worker.folder.clone(),
            stage,
            item,
            seconds,
            until: now + seconds,
        }))
    }

    fn renew(&mut self) -> Result<(), RunError> {
        let until = now() + self.seconds;
        let journal = self.folder.journal();
        if journal.move_lease(self.stage, &self.item, self.until, until)? {
            self.until = until;
        }
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let journal = self.folder.journal();
        if let Err(error) = journal.move_lease(self.stage, &self.item, self.until, 0) {
            tracing::warn!("a lease could not be given back: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_differ_and_honour_the_endpoint() {
        let options = ExecutorOptions {
            attempts: 100,
            backoff: Duration::from_secs(1),
            longest_wait: Duration::from_secs(60),
            ..ExecutorOptions::default()
        };
        let failure = Failure::new(FailureKind::Endpoint, "server: 500").retryable();
        let wait = |item: &str, attempt, failure: &Failure| {
            wait_after(&options, item, attempt, failure).map(|wait| wait.as_secs_f64())
        };
        for (attempt, full) in [(1, 1.0), (2, 2.0), (5, 16.0), (20, 60.0), (99, 60.0)] {
            let wait = wait("a", attempt, &failure).unwrap();
            assert!((full / 2.0..=full).contains(&wait), "{attempt}: {wait}");
        }
        assert_eq!(wait("a", 3, &failure), wait("a", 3, &failure));
        assert_ne!(wait("a", 3, &failure), wait("b", 3, &failure));
        assert_eq!(wait("a", 100, &failure), None);
        let after = |seconds| Failure {
            retry_after: Some(Duration::from_secs(seconds)),
            ..failure.clone()
        };
        assert_eq!(wait("a", 1, &after(30)), Some(30.0));
        assert_eq!(wait("a", 1, &after(61)), None);
        assert_eq!(wait("a", 1, &Failure::new(FailureKind::Item, "bad")), None);
    }
}
