//! Execution of one unit: lease, attempts, backoff, commit.

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::FutureExt;
use serde_json::Value;
use tokio::sync::watch;

use super::{ExecutorOptions, LocalExecutor};
use crate::observer::report_unit;
use crate::{Failure, FailureKind, FoldedLog, RunError, RunFolder, Stage};
use pybench_types::id::Digest;

/// Attempts at a unit that meet an outage of the journal or the store: with the default waits, some twenty minutes.
const OUTAGE_ATTEMPTS: u32 = 12;

/// How the execution of a unit ended.
pub(super) enum UnitEnd {
    /// Committed, by this or another worker.
    Done,
    /// Failed finally.
    Failed,
    /// Will be retried by a later command, or once the result that it waits for has arrived.
    Pending,
    /// Will be retried by a later command; nothing new may start.
    Stop(RunError),
}

/// Executes one unit.
pub(super) struct Worker {
    folder: Arc<RunFolder>,
    options: ExecutorOptions,
    stage: Arc<dyn Stage>,
    item: String,
    stop: watch::Receiver<bool>,
    /// Failures of the stage's units.
    failures: Arc<FoldedLog>,
}

impl Worker {
    pub(super) fn new(
        executor: &LocalExecutor,
        stage: Arc<dyn Stage>,
        item: String,
        stop: watch::Receiver<bool>,
        failures: Arc<FoldedLog>,
    ) -> Self {
        Self {
            folder: executor.folder.clone(),
            options: executor.options.clone(),
            stage,
            item,
            stop,
            failures,
        }
    }

    /// Makes attempts until the unit is done or failed, or the stage stops. They are counted for each call that
    /// fails, because a call that succeeded is not repeated.
    pub(super) async fn work(mut self) -> Result<UnitEnd, RunError> {
        let folder = self.folder.clone();
        let (journal, stage, item) = (folder.journal(), self.stage.name(), self.item.clone());
        let mut attempts = HashMap::new();
        loop {
            let Some(lease) = self.acquire().await? else {
                return self.recorded_end();
            };
            let failure = match self.attempt(lease).await? {
                Ok(output) => match journal.complete(stage, &item, &output) {
                    // Another worker has the unit: wait for its end.
                    Err(RunError::LeaseLost(lost)) => {
                        tracing::warn!("{lost}");
                        continue;
                    }
                    committed => {
                        committed?;
                        return Ok(UnitEnd::Done);
                    }
                },
                Err(failure) if failure.kind == FailureKind::Deferred => {
                    return Ok(UnitEnd::Pending);
                }
                Err(failure) => failure,
            };
            let attempt = *attempts
                .entry(failure.counted_for())
                .and_modify(|count: &mut u32| *count = count.saturating_add(1))
                .or_insert(1);
            tracing::debug!(stage, item, attempt, kind = ?failure.kind, "attempt failed: {failure}");
            let wait = wait_after(&self.options, &item, attempt, &failure);
            if failure.outage && wait.is_some() {
                log_outage(&self.failures, stage, &item, &failure);
            }
            let last = wait.is_none() && failure.is_of_unit();
            let stops = reason_to_stop(&failure, last);
            match journal.fail(stage, &item, &failure, last) {
                Err(RunError::LeaseLost(lost)) => {
                    tracing::warn!("{lost}; its failure does not count: {failure}");
                    continue;
                }
                recorded => recorded?,
            }
            match (stops, wait) {
                (Some(reason), _) => return Ok(UnitEnd::Stop(reason)),
                (None, None) => {
                    log_failure(&self.failures, stage, &item, &failure);
                    return Ok(UnitEnd::Failed);
                }
                (None, Some(wait)) if self.stopped_during(wait).await => {
                    return Ok(UnitEnd::Pending);
                }
                (None, Some(_)) => {}
            }
        }
    }

    /// Leases the unit, and waits while another worker holds the lease; `None` if the unit is not pending.
    async fn acquire(&mut self) -> Result<Option<Lease>, RunError> {
        loop {
            if let Some(lease) = Lease::acquire(self)? {
                return Ok(Some(lease));
            }
            let Some(until) = self
                .folder
                .journal()
                .leased_until(self.stage.name(), &self.item)?
            else {
                return Ok(None);
            };
            let now = self.folder.journal().now_millis()? / 1000;
            let wait = Duration::from_secs(until.saturating_sub(now).clamp(0, 1) as u64);
            if self
                .stopped_during(wait.max(Duration::from_millis(100)))
                .await
            {
                return Ok(None);
            }
        }
    }

    /// The end that another worker recorded.
    fn recorded_end(&self) -> Result<UnitEnd, RunError> {
        use crate::UnitState::*;
        let journal = self.folder.journal();
        Ok(match journal.state(self.stage.name(), &self.item)? {
            Some(Done) => UnitEnd::Done,
            Some(Failed) => UnitEnd::Failed,
            Some(Pending) | None => UnitEnd::Pending,
        })
    }

    /// Makes one attempt and renews the lease while it runs.
    async fn attempt(&self, mut lease: Lease) -> Result<Result<Value, Failure>, RunError> {
        let running = make_attempt(&self.options, self.stage.as_ref(), &self.item);
        tokio::pin!(running);
        loop {
            tokio::select! {
                end = &mut running => return Ok(end),
                () = tokio::time::sleep(self.options.lease / 3) => lease.renew()?,
            }
        }
    }

    /// Waits; `true` if the stage stopped meanwhile.
    async fn stopped_during(&mut self, wait: Duration) -> bool {
        tokio::select! {
            // An error means that the stage has been dropped.
            _ = self.stop.wait_for(|stop| *stop) => true,
            () = tokio::time::sleep(wait) => false,
        }
    }
}

/// Logs the failure of a unit, unless one like it is logged already.
pub(crate) fn log_failure(
    failures: &FoldedLog,
    stage: &'static str,
    item: &str,
    failure: &Failure,
) {
    match failure.kind {
        _ if !failures.is_new(&failure.detail) => {}
        FailureKind::Item => tracing::info!(stage, item, "left out: {failure}"),
        kind => tracing::warn!(stage, item, ?kind, "failed: {failure}"),
    }
}

/// Logs that an attempt met an outage and is repeated, unless one like it is logged already: it may be repeated for a long
/// time.
pub(crate) fn log_outage(failures: &FoldedLog, stage: &'static str, item: &str, failure: &Failure) {
    let reason = format!("trying again after an outage: {failure}");
    if failures.is_new(&reason) {
        tracing::warn!(stage, item, "{reason}");
    }
}

/// Wait before the next attempt; `None` if there is none.
pub(crate) fn wait_after(
    options: &ExecutorOptions,
    item: &str,
    attempt: u32,
    failure: &Failure,
) -> Option<Duration> {
    let attempts = match failure.outage {
        true => options.attempts.max(OUTAGE_ATTEMPTS),
        false => options.attempts,
    };
    if !failure.retryable || attempt >= attempts {
        return None;
    }
    let doubled = options.backoff.saturating_mul(1 << (attempt - 1).min(16));
    let seed = Digest::of_json(&(options.seed, item, attempt)).seed();
    // Between 50 % and 100 %, so that units that failed together do not retry together.
    let jitter = 0.5 + (seed as f64 / u64::MAX as f64) / 2.0;
    let wait = doubled.min(options.max_wait).mul_f64(jitter);
    let asked = failure.retry_after.unwrap_or_default();
    (asked <= options.max_wait).then(|| wait.max(asked))
}

/// Failures after which nothing new may start. `last` says that no further attempt would be made at the unit.
pub(crate) fn reason_to_stop(failure: &Failure, last: bool) -> Option<RunError> {
    match failure.kind {
        FailureKind::Budget => Some(RunError::Budget(failure.detail.clone())),
        FailureKind::Store => Some(RunError::StoreRefused(failure.detail.clone())),
        // Every other unit would fail in the same way.
        FailureKind::Endpoint if concerns_all_calls(&failure.detail) => {
            Some(RunError::Endpoint(failure.detail.clone()))
        }
        // The endpoint was unreachable for all the time between the attempts at one unit.
        FailureKind::Endpoint if last && failure.detail.starts_with("connection: ") => {
            Some(RunError::Endpoint(format!(
                "{}; check that the endpoint runs and that `base_url` is right, then run the same command again",
                failure.detail
            )))
        }
        _ => None,
    }
}

/// Whether the endpoint refused the API key, or does not have the model or the path.
fn concerns_all_calls(detail: &str) -> bool {
    ["unauthorized: ", "not_found: "]
        .iter()
        .any(|kind| detail.starts_with(kind))
}

/// Makes one attempt at a unit, and reports its end.
pub(crate) async fn make_attempt(
    options: &ExecutorOptions,
    stage: &dyn Stage,
    item: &str,
) -> Result<Value, Failure> {
    let started = SystemTime::now();
    let end = attempt_in_time(options, stage, item).await;
    report_unit(stage.name(), item, started, &end);
    end
}

/// Makes one attempt at a unit, and gives it up when it takes too long. A panic becomes an internal failure.
async fn attempt_in_time(
    options: &ExecutorOptions,
    stage: &dyn Stage,
    item: &str,
) -> Result<Value, Failure> {
    let running = AssertUnwindSafe(stage.run(item)).catch_unwind();
    let end = match options.unit_limit {
        None => running.await,
        Some(limit) => match tokio::time::timeout(limit, running).await {
            Ok(end) => end,
            Err(_) => return Err(took_too_long(limit)),
        },
    };
    end.unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
}

/// The failure of an attempt that did not end in time. Another one may: it continues from what is recorded.
fn took_too_long(limit: Duration) -> Failure {
    let minutes = limit.as_secs_f64() / 60.0;
    let detail = format!(
        "the attempt did not end within {minutes} minutes: something that it waits for hangs, or `rollout.unit_minutes` \
         is too low"
    );
    Failure::new(FailureKind::Internal, detail).retryable()
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    Failure::new(
        FailureKind::Internal,
        format!("a stage panicked, which is a bug in pybench: {text}"),
    )
}

/// The lease of a unit. Dropping it releases the unit, unless it was committed or leased by another worker.
struct Lease {
    folder: Arc<RunFolder>,
    stage: &'static str,
    item: String,
    seconds: i64,
    until: i64,
}

impl Lease {
    fn acquire(worker: &Worker) -> Result<Option<Self>, RunError> {
        let seconds = worker.options.lease.as_secs().max(1) as i64;
        let (stage, item) = (worker.stage.name(), worker.item.clone());
        let journal = worker.folder.journal();
        // Unix time in seconds, as the journal stores it.
        let now = journal.now_millis()? / 1000;
        let taken = journal.lease(stage, &item, now, seconds)?;
        Ok(taken.then(|| Self {
            folder: worker.folder.clone(),
            stage,
            item,
            seconds,
            until: now + seconds,
        }))
    }

    fn renew(&mut self) -> Result<(), RunError> {
        let journal = self.folder.journal();
        let until = journal.now_millis()? / 1000 + self.seconds;
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
            tracing::warn!("cannot release a lease: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_have_jitter_and_respect_retry_after() {
        let options = ExecutorOptions {
            attempts: 100,
            backoff: Duration::from_secs(1),
            max_wait: Duration::from_secs(60),
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

    #[test]
    fn an_outage_has_to_last_long_to_end_a_unit() {
        let options = ExecutorOptions::default();
        let outage = Failure::from(RunError::Store("away".to_owned()));
        let waits = (1..).map_while(|attempt| wait_after(&options, "a", attempt, &outage));
        let all: Duration = waits.take(100).sum();
        let minutes = all.as_secs() / 60;
        assert!((10..=30).contains(&minutes), "{minutes}");
        let failure = Failure::new(FailureKind::Endpoint, "server: 500").retryable();
        assert_eq!(wait_after(&options, "a", options.attempts, &failure), None);
    }
}
