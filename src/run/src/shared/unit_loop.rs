//! Works on the offered units of a round, in the coordinator and in workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::announcement::{Round, StopReason};
use super::lease::{Lease, Leases};
use super::queue::{Delivery, DeliveryEnd, UnitQueue};
use crate::local::{Admission, log_failure, log_outage, make_attempt, reason_to_stop, wait_after};
use crate::{
    Bottleneck, ExecutorOptions, Failure, FailureKind, FoldedLog, InFlight, Interrupt,
    RequestCounts, RunError, RunFolder, Stage, UnitState,
};

/// Tasks that wait for the queue at the same time.
const MAX_WAITING: usize = 8;

/// Time until a unit that cannot be leased is delivered again, at least and at most.
const MIN_REDELIVERY: Duration = Duration::from_millis(50);
const MAX_REDELIVERY: Duration = Duration::from_secs(10);

/// How an attempt ended.
pub(super) enum AttemptEnd {
    Done,
    /// The unit has failed finally.
    Failed(String),
    /// There will be another attempt, here or elsewhere, after this time.
    Later(Duration),
    /// The unit waits for a reply and is not tried again in this round.
    Deferred,
    /// Another process has the unit.
    Lost,
    /// Nothing new may start.
    Stop(StopReason),
    /// There was no attempt.
    NotTaken,
}

impl AttemptEnd {
    /// What the queue does with the unit.
    fn delivery(&self) -> DeliveryEnd {
        match self {
            Self::Done => DeliveryEnd::Done,
            Self::Failed(detail) => DeliveryEnd::Closed(detail.clone()),
            Self::Later(wait) => DeliveryEnd::Again(*wait),
            Self::Deferred => DeliveryEnd::Closed("waits for a later round".to_owned()),
            Self::Lost | Self::NotTaken => DeliveryEnd::Again(MAX_REDELIVERY),
            Self::Stop(reason) => {
                DeliveryEnd::Closed(format!("the round stops: {}", reason.detail()))
            }
        }
    }
}

/// The units of a round that this process works on.
pub(super) struct UnitLoop {
    shared: Arc<Shared>,
    /// Where units come from; without it, they are the first ones that the journal offers.
    queue: Option<Arc<dyn UnitQueue>>,
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
    /// Tasks that wait for the queue.
    waiting: AtomicUsize,
    /// Whether tasks stop waiting for the queue.
    stopped: watch::Sender<bool>,
    leases: Leases,
}

impl UnitLoop {
    pub(super) fn new(
        folder: Arc<RunFolder>,
        options: ExecutorOptions,
        interrupt: Interrupt,
        stage: Arc<dyn Stage>,
        (round, queue): (Round, Option<Arc<dyn UnitQueue>>),
    ) -> Result<Self, RunError> {
        let spent = folder.journal().spent()?;
        Ok(Self {
            queue,
            running: JoinSet::new(),
            admission: Admission::new(options.concurrency, options.budget, spent),
            requests: folder.requests().subscribe(),
            limited_by: None,
            shared: Arc::new(Shared {
                failures: FoldedLog::new(stage.name()),
                leases: Leases::new(folder.clone(), stage.name(), options.lease)?,
                folder,
                options,
                interrupt,
                stage,
                round,
                waiting: AtomicUsize::new(0),
                stopped: watch::Sender::new(false),
            }),
        })
    }

    /// Whether no unit is in work.
    pub(super) fn is_idle(&self) -> bool {
        self.len() == 0
    }

    /// Number of units in work.
    pub(super) fn len(&self) -> usize {
        let waiting = self.shared.waiting.load(Ordering::SeqCst);
        self.running.len().saturating_sub(waiting)
    }

    /// Takes nothing more from the queue.
    pub(super) fn stop_taking(&self) {
        self.shared.stopped.send_replace(true);
    }

    /// Leases offered units, or waits for units of the queue, while admission allows it.
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
            let shared = self.shared.clone();
            match &self.queue {
                Some(_) if shared.waiting.load(Ordering::SeqCst) >= MAX_WAITING => return Ok(()),
                Some(queue) => {
                    let waiting = Waiting::new(&shared);
                    self.running.spawn(shared.take(queue.clone(), waiting));
                }
                None => {
                    let Some(lease) = shared.leases.next(&shared.round.id)? else {
                        return Ok(());
                    };
                    self.running.spawn(shared.attempt(lease, None));
                }
            }
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
                if let Ok(AttemptEnd::Done | AttemptEnd::Failed(_)) = end {
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
            units: self.len(),
            requests: self.requests.borrow().in_flight,
            limited_by: self.limited_by,
        }
    }
}

/// Counts a task that waits for the queue.
struct Waiting(Arc<Shared>);

impl Waiting {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.waiting.fetch_add(1, Ordering::SeqCst);
        Self(shared.clone())
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    /// Waits for a unit of the queue and makes one attempt at it.
    async fn take(
        self: Arc<Self>,
        queue: Arc<dyn UnitQueue>,
        waiting: Waiting,
    ) -> Result<AttemptEnd, RunError> {
        let mut stopped = self.stopped.subscribe();
        let delivery = tokio::select! {
            biased;
            taken = queue.take(&self.round) => taken?,
            _ = stopped.wait_for(|stopped| *stopped) => None,
        };
        drop(waiting);
        let Some(delivery) = delivery else {
            return Ok(AttemptEnd::NotTaken);
        };
        if *self.stopped.borrow() {
            delivery.end(DeliveryEnd::Again(MIN_REDELIVERY)).await;
            return Ok(AttemptEnd::NotTaken);
        }
        match self.lease_delivered(delivery.item())? {
            Ok(lease) => {
                let folder = self.folder.clone();
                let end = self.attempt(lease, Some(delivery.as_ref())).await;
                if let Some(turns) = folder.turns() {
                    turns.forget(delivery.item());
                }
                let end = end?;
                delivery.end(end.delivery()).await;
                Ok(end)
            }
            Err(end) => {
                delivery.end(end).await;
                Ok(AttemptEnd::NotTaken)
            }
        }
    }

    /// Makes one attempt at the unit. Failures are counted for each call that fails, because a call that succeeded is not
    /// repeated.
    async fn attempt(
        self: Arc<Self>,
        lease: Lease,
        delivery: Option<&dyn Delivery>,
    ) -> Result<AttemptEnd, RunError> {
        let journal = self.folder.journal();
        let (stage, item) = (self.stage.name(), lease.offer.item.clone());
        if lease.offer.lost >= self.options.attempts {
            let failure = ended_workers(lease.offer.lost);
            return self.record(&lease, &failure, None);
        }
        let end: Result<Value, Failure> = tokio::select! {
            biased;
            reason = lease.lost() => {
                tracing::warn!(stage, item, "an attempt is dropped: {reason}");
                return Ok(AttemptEnd::Lost);
            }
            // It never ends.
            () = self.tell(delivery, &item) => return Ok(AttemptEnd::Lost),
            end = make_attempt(&self.options, self.stage.as_ref(), &item) => end,
        };
        let failure = match end {
            Ok(output) => {
                lease.end();
                return match journal.complete(stage, &item, &output) {
                    Err(RunError::LeaseLost(lost)) => {
                        tracing::warn!("{lost}");
                        Ok(AttemptEnd::Lost)
                    }
                    committed => committed.map(|()| AttemptEnd::Done),
                };
            }
            Err(failure) => failure,
        };
        if failure.kind == FailureKind::Deferred {
            // A process that ends leaves the unit to others; what waits for a reply is not tried again in this round.
            if self.interrupt.requested() || self.folder.is_draining() {
                return Ok(AttemptEnd::Later(MIN_REDELIVERY));
            }
            journal.withdraw(&self.round.id, stage, &item)?;
            return Ok(AttemptEnd::Deferred);
        }
        let mut failures = Failures::parse(&lease.offer.failures)?;
        let attempt = failures.add(&failure);
        tracing::debug!(stage, item, attempt, kind = ?failure.kind, "attempt failed: {failure}");
        let wait = wait_after(&self.options, &item, attempt, &failure);
        if let Some(wait) = wait {
            if failure.outage {
                log_outage(&self.failures, stage, &item, &failure);
            }
            let until = journal
                .now_millis()?
                .saturating_add(wait.as_millis() as i64);
            let unit = (stage, item.as_str());
            journal.postpone(&self.round.id, unit, &failures.to_json()?, until)?;
        }
        self.record(&lease, &failure, wait)
    }

    /// Leases a unit that the queue has delivered; otherwise, what the queue does with it.
    fn lease_delivered(&self, item: &str) -> Result<Result<Lease, DeliveryEnd>, RunError> {
        let (journal, round) = (self.folder.journal(), &self.round);
        let stage = self.stage.name();
        if let Some(lease) = self.leases.of(&round.id, item)? {
            return Ok(Ok(lease));
        }
        if let Some(from) = journal.offered_from(&round.id, stage, item)? {
            let wait = from.saturating_sub(journal.now_millis()?);
            let wait = Duration::from_millis(u64::try_from(wait).unwrap_or(0));
            let wait = wait.clamp(MIN_REDELIVERY, MAX_REDELIVERY);
            return Ok(Err(DeliveryEnd::Again(wait)));
        }
        Ok(Err(match journal.state(stage, item)? {
            Some(UnitState::Done) => DeliveryEnd::Done,
            Some(UnitState::Failed) => DeliveryEnd::Closed("has failed".to_owned()),
            Some(UnitState::Pending) | None => {
                let announced = Round::announced(journal)?;
                match announced.is_some_and(|announced| announced.id == round.id) {
                    true => DeliveryEnd::Closed("is not offered".to_owned()),
                    // The next round may offer it.
                    false => DeliveryEnd::Again(Duration::from_secs(1)),
                }
            }
        }))
    }

    /// Tells the queue again and again that a unit is in work, and its turn.
    async fn tell(&self, delivery: Option<&dyn Delivery>, item: &str) {
        let Some(delivery) = delivery else {
            return std::future::pending().await;
        };
        loop {
            tokio::time::sleep(self.options.lease / 3).await;
            let turns = self.folder.turns();
            delivery.beat(turns.map_or(0, |turns| turns.of(item)));
        }
    }

    /// Records a failure; `wait` is the time until the next attempt, if there is one.
    fn record(
        &self,
        lease: &Lease,
        failure: &Failure,
        wait: Option<Duration>,
    ) -> Result<AttemptEnd, RunError> {
        let journal = self.folder.journal();
        let last = wait.is_none() && failure.is_of_unit();
        // Either way, this process no longer has the unit.
        lease.end();
        let item = &lease.offer.item;
        match journal.fail(self.stage.name(), item, failure, last) {
            Err(RunError::LeaseLost(lost)) => {
                tracing::warn!("{lost}; its failure does not count: {failure}");
                return Ok(AttemptEnd::Lost);
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
            return Ok(AttemptEnd::Failed(failure.detail.clone()));
        }
        Ok(AttemptEnd::Later(wait.unwrap_or_default()))
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

/// Numbers of failures in this round, by what attempts are counted for.
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
        let count = self.0.entry(failure.counted_for()).or_default();
        *count = count.saturating_add(1);
        *count
    }

    fn to_json(&self) -> Result<String, RunError> {
        Ok(serde_json::to_string(&self.0)?)
    }
}
