//! Works on the offered units of a round, in the coordinator and in workers.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::announcement::{Round, StopReason};
use super::now_millis;
use crate::journal::{LeasedOffer, lease_end};
use crate::local::{Admission, log_failure, make_attempt, reason_to_stop, wait_after};
use crate::{
    Bottleneck, ExecutorOptions, Failure, FailureKind, FoldedLog, InFlight, Interrupt,
    RequestCounts, RunError, RunFolder, Stage,
};

/// How an attempt ended.
pub(super) enum AttemptEnd {
    /// The unit is done or has failed finally.
    Ended,
    /// There will be another attempt, here or elsewhere.
    Pending,
    /// Nothing new may start.
    Stop(StopReason),
}

/// The units of a round that this process works on.
pub(super) struct UnitLoop {
    shared: Arc<Shared>,
    running: JoinSet<Result<AttemptEnd, RunError>>,
    admission: Admission,
    /// Requests of the units.
    requests: watch::Receiver<RequestCounts>,
    /// What keeps the next unit from starting.
    limited_by: Option<Bottleneck>,
}

/// What all attempts share.
struct Shared {
    folder: Arc<RunFolder>,
    options: ExecutorOptions,
    interrupt: Interrupt,
    stage: Arc<dyn Stage>,
    round: Round,
    failures: FoldedLog,
}

impl UnitLoop {
    pub(super) fn new(
        folder: Arc<RunFolder>,
        options: ExecutorOptions,
        interrupt: Interrupt,
        stage: Arc<dyn Stage>,
        round: Round,
    ) -> Result<Self, RunError> {
        let spent = folder.journal().spent()?;
        Ok(Self {
            running: JoinSet::new(),
            admission: Admission::new(options.concurrency, options.budget, spent),
            requests: folder.requests().subscribe(),
            limited_by: None,
            shared: Arc::new(Shared {
                failures: FoldedLog::new(stage.name()),
                folder,
                options,
                interrupt,
                stage,
                round,
            }),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    /// Leases offered units while admission allows it.
    pub(super) fn start_more(&mut self) -> Result<(), RunError> {
        loop {
            let (units, requests) = (self.running.len(), *self.requests.borrow_and_update());
            let journal = self.shared.folder.journal();
            self.limited_by = self
                .admission
                .refuses(units, requests, || journal.spent())?;
            if self.limited_by.is_some() {
                return Ok(());
            }
            let Some(lease) = Lease::acquire(&self.shared)? else {
                return Ok(());
            };
            self.running.spawn(self.shared.clone().attempt(lease));
        }
    }

    /// Waits until an attempt has ended, or until more may start (`None`).
    pub(super) async fn next(&mut self) -> Option<Result<AttemptEnd, RunError>> {
        let limited = self.limited_by.is_some();
        tokio::select! {
            Some(end) = self.running.join_next() => {
                // The attempt catches panics of the stage, so a panic here is a bug in the executor.
                let end = end.unwrap_or_else(|error| {
                    Err(RunError::Internal(format!("a worker task failed: {error}")))
                });
                if let Ok(AttemptEnd::Ended) = end {
                    self.admission.done();
                }
                Some(end)
            }
            Ok(()) = self.requests.changed(), if limited => None,
            else => std::future::pending().await,
        }
    }

    /// Drops the units that still run; they give their leases back.
    pub(super) async fn shutdown(&mut self) {
        self.running.shutdown().await;
    }

    pub(super) fn in_flight(&self) -> InFlight {
        InFlight {
            stage: self.shared.round.stage.clone(),
            units: self.running.len(),
            requests: self.requests.borrow().in_flight,
            limited_by: self.limited_by,
        }
    }
}

impl Shared {
    /// Makes one attempt at the unit. Failures are counted for each call that fails, because a call that succeeded is not
    /// repeated.
    async fn attempt(self: Arc<Self>, mut lease: Lease) -> Result<AttemptEnd, RunError> {
        let journal = self.folder.journal();
        let (stage, item) = (self.stage.name(), lease.offer.item.clone());
        if lease.offer.lost >= self.options.attempts {
            let failure = ended_workers(lease.offer.lost);
            return self.record(&mut lease, &failure, true);
        }
        let running = make_attempt(&self.options, self.stage.as_ref(), &item);
        tokio::pin!(running);
        let end: Result<Value, Failure> = loop {
            tokio::select! {
                end = &mut running => break end,
                () = tokio::time::sleep(self.options.lease / 3) => {
                    if !lease.renew()? {
                        tracing::warn!(stage, item, "another worker has the unit: its lease had ended here");
                        return Ok(AttemptEnd::Pending);
                    }
                }
            }
        };
        let failure = match end {
            Ok(output) => {
                lease.has_ended = true;
                return match journal.complete(stage, &item, &output) {
                    Err(RunError::LeaseLost(lost)) => {
                        tracing::warn!("{lost}");
                        Ok(AttemptEnd::Pending)
                    }
                    committed => committed.map(|()| AttemptEnd::Ended),
                };
            }
            Err(failure) => failure,
        };
        if failure.kind == FailureKind::Deferred {
            // A process that ends leaves the unit to others; what waits for a reply is not tried again in this round.
            if !self.interrupt.requested() && !self.folder.is_draining() {
                journal.withdraw(&self.round.id, stage, &item)?;
            }
            return Ok(AttemptEnd::Pending);
        }
        let mut failures = Failures::parse(&lease.offer.failures)?;
        let attempt = failures.add(&failure);
        tracing::debug!(stage, item, attempt, kind = ?failure.kind, "attempt failed: {failure}");
        let wait = wait_after(&self.options, &item, attempt, &failure);
        let last = wait.is_none() && failure.kind != FailureKind::Budget;
        if let Some(wait) = wait {
            let until = now_millis().saturating_add(wait.as_millis() as i64);
            let unit = (stage, item.as_str());
            journal.postpone(&self.round.id, unit, &failures.to_json()?, until)?;
        }
        self.record(&mut lease, &failure, last)
    }

    fn record(
        &self,
        lease: &mut Lease,
        failure: &Failure,
        last: bool,
    ) -> Result<AttemptEnd, RunError> {
        let journal = self.folder.journal();
        // Either way, this process no longer has the unit.
        lease.has_ended = true;
        let item = &lease.offer.item;
        match journal.fail(self.stage.name(), item, failure, last) {
            Err(RunError::LeaseLost(lost)) => {
                tracing::warn!("{lost}; its failure does not count: {failure}");
                return Ok(AttemptEnd::Pending);
            }
            recorded => recorded?,
        }
        if let Some(reason) = reason_to_stop(failure, last) {
            let reason = StopReason::new(&self.round.id, &reason);
            reason.record(journal)?;
            return Ok(AttemptEnd::Stop(reason));
        }
        if last {
            log_failure(&self.failures, self.stage.name(), item, failure);
            return Ok(AttemptEnd::Ended);
        }
        Ok(AttemptEnd::Pending)
    }
}

/// The failure of a unit whose attempts ended together with their processes.
fn ended_workers(lost: u32) -> Failure {
    Failure::new(
        FailureKind::Internal,
        format!(
            "{lost} attempts ended without a result: each time, the process that made it was killed or silent for longer \
             than its lease; look for the reason in the logs of the workers and of the kernel (out of memory?)"
        ),
    )
}

/// Numbers of failures in this round, by the call that failed; the key is empty for failures of no call.
struct Failures(HashMap<String, u32>);

impl Failures {
    fn parse(text: &str) -> Result<Self, RunError> {
        match text {
            "" => Ok(Self(HashMap::new())),
            text => Ok(Self(serde_json::from_str(text)?)),
        }
    }

    /// Counts a failure; the number of those like it.
    fn add(&mut self, failure: &Failure) -> u32 {
        let call = failure.call.as_ref().map(|call| call.as_str().to_owned());
        let count = self.0.entry(call.unwrap_or_default()).or_default();
        *count = count.saturating_add(1);
        *count
    }

    fn to_json(&self) -> Result<String, RunError> {
        Ok(serde_json::to_string(&self.0)?)
    }
}

/// The lease of a unit. Dropping it gives the unit back, unless it has ended or another worker has it.
struct Lease {
    shared: Arc<Shared>,
    offer: LeasedOffer,
    seconds: i64,
    /// Whether there is nothing to give back.
    has_ended: bool,
}

impl Lease {
    fn acquire(shared: &Arc<Shared>) -> Result<Option<Self>, RunError> {
        let seconds = shared.options.lease.as_secs().max(1) as i64;
        let (journal, round) = (shared.folder.journal(), &shared.round);
        let offer = journal.lease_offer(&round.id, shared.stage.name(), now_millis(), seconds)?;
        Ok(offer.map(|offer| Self {
            shared: shared.clone(),
            offer,
            seconds,
            has_ended: false,
        }))
    }

    /// `false` if another worker has the unit.
    fn renew(&mut self) -> Result<bool, RunError> {
        let until = lease_end(now_millis(), self.seconds);
        let moved = self.move_to(until)?;
        match moved {
            true => self.offer.until = until,
            false => self.has_ended = true,
        }
        Ok(moved)
    }

    fn move_to(&self, until: i64) -> Result<bool, RunError> {
        let (journal, stage) = (self.shared.folder.journal(), self.shared.stage.name());
        journal.move_lease(stage, &self.offer.item, self.offer.until, until)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.has_ended
            && let Err(error) = self.move_to(0)
        {
            tracing::warn!("cannot release a lease: {error}");
        }
    }
}
