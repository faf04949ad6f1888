//! Works on the offered units of a round, in the coordinator and in workers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::announcement::{Round, StopReason};
use super::queue::{Delivery, DeliveryEnd, UnitQueue};
use crate::journal::{LeasedOffer, lease_end};
use crate::local::{Admission, log_failure, make_attempt, reason_to_stop, wait_after};
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
                    let Some(lease) = Lease::acquire(&shared)? else {
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
        match Lease::acquire_delivered(&self, delivery.item())? {
            Ok(lease) => {
                let end = self.attempt(lease, Some(delivery.as_ref())).await?;
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
        mut lease: Lease,
        delivery: Option<&dyn Delivery>,
    ) -> Result<AttemptEnd, RunError> {
        let journal = self.folder.journal();
        let (stage, item) = (self.stage.name(), lease.offer.item.clone());
        if lease.offer.lost >= self.options.attempts {
            let failure = ended_workers(lease.offer.lost);
            return self.record(&mut lease, &failure, None);
        }
        let running = make_attempt(&self.options, self.stage.as_ref(), &item);
        tokio::pin!(running);
        let end: Result<Value, Failure> = loop {
            tokio::select! {
                end = &mut running => break end,
                () = tokio::time::sleep(self.options.lease / 3) => {
                    if !lease.renew()? {
                        tracing::warn!(stage, item, "another worker has the unit: its lease had ended here");
                        return Ok(AttemptEnd::Lost);
                    }
                    if let Some(delivery) = delivery {
                        delivery.beat(journal.count_events(&item)?);
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
            let until = journal
                .now_millis()?
                .saturating_add(wait.as_millis() as i64);
            let unit = (stage, item.as_str());
            journal.postpone(&self.round.id, unit, &failures.to_json()?, until)?;
        }
        self.record(&mut lease, &failure, wait)
    }

    /// Records a failure; `wait` is the time until the next attempt, if there is one.
    fn record(
        &self,
        lease: &mut Lease,
        failure: &Failure,
        wait: Option<Duration>,
    ) -> Result<AttemptEnd, RunError> {
        let journal = self.folder.journal();
        let last = wait.is_none() && failure.kind != FailureKind::Budget;
        // Either way, this process no longer has the unit.
        lease.has_ended = true;
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
        let now = journal.now_millis()?;
        let offer = journal.lease_offer(&round.id, shared.stage.name(), now, seconds)?;
        Ok(offer.map(|offer| Self {
            shared: shared.clone(),
            offer,
            seconds,
            has_ended: false,
        }))
    }

    /// Leases a unit that the queue has delivered; otherwise, what the queue does with it.
    fn acquire_delivered(
        shared: &Arc<Shared>,
        item: &str,
    ) -> Result<Result<Self, DeliveryEnd>, RunError> {
        let seconds = shared.options.lease.as_secs().max(1) as i64;
        let (journal, round) = (shared.folder.journal(), &shared.round);
        let unit = (shared.stage.name(), item);
        let now = journal.now_millis()?;
        if let Some(offer) = journal.lease_offered(&round.id, unit, now, seconds)? {
            return Ok(Ok(Self {
                shared: shared.clone(),
                offer,
                seconds,
                has_ended: false,
            }));
        }
        if let Some(from) = journal.offered_from(&round.id, unit.0, unit.1)? {
            let wait = u64::try_from(from.saturating_sub(now)).unwrap_or(0);
            let wait = Duration::from_millis(wait).clamp(MIN_REDELIVERY, MAX_REDELIVERY);
            return Ok(Err(DeliveryEnd::Again(wait)));
        }
        Ok(Err(match journal.state(unit.0, unit.1)? {
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

    /// `false` if another worker has the unit.
    fn renew(&mut self) -> Result<bool, RunError> {
        let now = self.shared.folder.journal().now_millis()?;
        let until = lease_end(now, self.seconds);
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
