//! Units that several processes may work on, and the processes.
//!
//! The coordinator of a run offers the units of one round of one stage, a window at a time. Each process leases the next
//! offered unit. Failures are counted with the offer, so that it does not matter which process makes the next attempt.

use super::Journal;
use super::leased::Attempt;
use crate::RunError;

/// An offered unit that this handle has leased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedOffer {
    pub item: String,
    /// Number of the attempt.
    pub attempt: u32,
    /// End of the lease, Unix time in seconds.
    pub until: i64,
    /// Failures of earlier attempts in this round, as [`Journal::postpone`] recorded them; empty if there are none.
    pub failures: String,
    /// Attempts of this round whose lease ended without a result.
    pub lost: u32,
}

/// What a database is asked for: the next offered unit, or a given one.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeaseRequest<'a> {
    pub(super) round: &'a str,
    pub(super) stage: &'a str,
    /// The only unit that will do; `None`: the next one.
    pub(super) item: Option<&'a str>,
    /// Unix time in milliseconds.
    pub(super) now_millis: i64,
    /// End of the lease, Unix time in seconds.
    pub(super) until: i64,
}

impl LeaseRequest<'_> {
    /// Unix time in seconds.
    pub(super) fn now(&self) -> i64 {
        self.now_millis / 1000
    }
}

/// What became of the offered units since they were last counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OfferCounts {
    /// Whether an earlier count may have been lost with the connection, so that `done` and `failed` lack its units.
    pub is_partial: bool,
    pub done: u64,
    pub failed: u64,
    /// Units that are offered still.
    pub open: u64,
    /// Those of them that no process has leased. A lease that has ended without a result counts until the unit is leased again.
    pub free: u64,
}

/// End of a lease of `seconds`, Unix time in seconds, rounded up, so that it is not shorter.
pub(crate) fn lease_end(now_millis: i64, seconds: i64) -> i64 {
    (now_millis + 999) / 1000 + seconds
}

impl Journal {
    /// Whether other processes can join this journal.
    pub fn is_shared(&self) -> bool {
        self.backend.is_shared()
    }

    /// Unix time in milliseconds, by the one clock of all processes that share the journal: that of its server.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn now_millis(&self) -> Result<i64, RunError> {
        self.backend.now_millis()
    }

    /// Offers those of these units that are pending. An offer of an earlier round is replaced.
    pub fn offer(&self, round: &str, stage: &str, items: &[String]) -> Result<(), RunError> {
        self.backend.offer(round, stage, items)
    }

    /// Withdraws all offers; units that are leased stay leased.
    pub fn clear_offers(&self) -> Result<(), RunError> {
        self.backend.clear_offers()
    }

    /// Withdraws the offer of one unit.
    pub fn withdraw(&self, round: &str, stage: &str, item: &str) -> Result<(), RunError> {
        self.backend.withdraw(round, stage, item)
    }

    /// Deletes the offers of units that are done or failed, and counts.
    pub fn sweep_offers(&self, round: &str) -> Result<OfferCounts, RunError> {
        self.backend.sweep_offers(round)
    }

    /// The units that a round offers still, in order.
    pub fn offered(&self, round: &str) -> Result<Vec<String>, RunError> {
        self.backend.offered(round)
    }

    /// When an offered unit may be leased, Unix time in milliseconds: its lease and its wait after a failure have ended
    /// then. `None` if the round does not offer it.
    pub fn offered_from(
        &self,
        round: &str,
        stage: &str,
        item: &str,
    ) -> Result<Option<i64>, RunError> {
        self.backend.offered_from(round, stage, item)
    }

    /// Leases an offered unit of a round that is neither leased nor postponed, for `seconds`, as [`Journal::lease`] does: the
    /// first one whose lease or wait has ended, or else the first one that no worker has had.
    pub fn lease_offer(
        &self,
        round: &str,
        stage: &str,
        now_millis: i64,
        seconds: i64,
    ) -> Result<Option<LeasedOffer>, RunError> {
        self.lease_requested(LeaseRequest {
            round,
            stage,
            item: None,
            now_millis,
            until: lease_end(now_millis, seconds),
        })
    }

    /// Leases one offered unit, as [`Journal::lease_offer`] does.
    pub fn lease_offered(
        &self,
        round: &str,
        (stage, item): (&str, &str),
        now_millis: i64,
        seconds: i64,
    ) -> Result<Option<LeasedOffer>, RunError> {
        self.lease_requested(LeaseRequest {
            round,
            stage,
            item: Some(item),
            now_millis,
            until: lease_end(now_millis, seconds),
        })
    }

    fn lease_requested(&self, request: LeaseRequest<'_>) -> Result<Option<LeasedOffer>, RunError> {
        let stage = request.stage;
        let is_held = |item: &str| self.leased.number(stage, item).is_some();
        let leased = self.backend.lease_offer(request, &is_held)?;
        if let Some(offer) = &leased {
            self.leased.insert(stage, &offer.item, offer.attempt);
        }
        Ok(leased)
    }

    /// Keeps the failures of an offered unit that this handle has leased, and lets no process lease it before
    /// `until_millis`. Has no effect once another worker has leased the unit.
    pub fn postpone(
        &self,
        round: &str,
        (stage, item): (&str, &str),
        failures: &str,
        until_millis: i64,
    ) -> Result<(), RunError> {
        let Some(number) = self.leased.number(stage, item) else {
            return Ok(());
        };
        let attempt = Attempt {
            stage,
            item,
            number,
        };
        self.backend
            .postpone(round, attempt, failures, until_millis)
    }

    /// Registers this process as a worker that is alive, for `seconds`. `about` describes it, as JSON.
    pub fn beat(&self, about: &str, seconds: i64) -> Result<(), RunError> {
        self.backend.beat(about, seconds)
    }

    /// Ends the registration: leases are given back, and calls in flight become uncertain.
    pub fn leave(&self) -> Result<(), RunError> {
        self.backend.leave()
    }

    /// The workers that are alive, as JSON, each with the seconds since its last sign of life.
    pub fn members(&self) -> Result<Vec<(String, u64)>, RunError> {
        self.backend.members()
    }

    /// Removes the workers whose time has passed. Their calls in flight become uncertain.
    pub fn remove_dead_members(&self) -> Result<(), RunError> {
        self.backend.remove_dead_members()
    }

    /// Whether a call of another process is in flight, which may return a part of the budget.
    pub fn has_calls_elsewhere(&self) -> Result<bool, RunError> {
        self.backend.has_calls_elsewhere()
    }
}
