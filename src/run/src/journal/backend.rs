//! What a database has to do to hold a journal. [`super::Journal`] adds types and remembers which attempts it has leased.
//!
//! Every implementation passes the tests in `src/cluster/tests/cluster/journal`.

use std::fmt::Debug;

use super::leased::Attempt;
use super::offers::{LeaseRequest, LeasedOffer, OfferCounts};
use super::transfer::TransferStore;
use super::{
    Batch, BatchRequest, BudgetCap, CallState, PendingCall, Reservation, ReserveError, RetryFailed,
    Spent, UnitFailure,
};
use crate::{Failure, RunError, StageSummary, Unit, UnitState};
use pybench_types::id::Digest;

/// A database that holds the journal of one run.
pub(super) trait Backend:
    UnitStore
    + OfferStore
    + CallStore
    + StepStore
    + MetadataStore
    + BatchStore
    + TransferStore
    + Debug
    + Send
    + Sync
{
}

impl<T> Backend for T where
    T: UnitStore
        + OfferStore
        + CallStore
        + StepStore
        + MetadataStore
        + BatchStore
        + TransferStore
        + Debug
        + Send
        + Sync
{
}

/// Visits the item and the output of a unit, as JSON text.
pub(super) type VisitOutput<'a> = dyn FnMut(&str, &str) -> Result<(), RunError> + 'a;

pub(super) trait UnitStore {
    fn enqueue(&self, stage: &str, items: &mut dyn Iterator<Item = String>)
    -> Result<(), RunError>;
    fn pending(
        &self,
        stage: &str,
        items: &mut dyn Iterator<Item = String>,
    ) -> Result<(Vec<usize>, u64), RunError>;
    fn units(&self, stage: &str) -> Result<Vec<Unit>, RunError>;
    fn failures(&self) -> Result<Vec<UnitFailure>, RunError>;
    fn stages(&self) -> Result<Vec<String>, RunError>;
    fn each_output(&self, stage: &str, visit: &mut VisitOutput<'_>) -> Result<(), RunError>;
    fn output(&self, stage: &str, item: &str) -> Result<Option<String>, RunError>;
    /// Leases a pending unit whose lease ended before `now`; the number of the attempt.
    fn lease(&self, stage: &str, item: &str, now: i64, until: i64)
    -> Result<Option<u32>, RunError>;
    fn leased_until(&self, stage: &str, item: &str) -> Result<Option<i64>, RunError>;
    fn move_lease(&self, stage: &str, item: &str, from: i64, to: i64) -> Result<bool, RunError>;
    fn complete(
        &self,
        stage: &str,
        item: &str,
        attempt: Option<Attempt<'_>>,
        output: &str,
    ) -> Result<(), RunError>;
    fn fail(
        &self,
        stage: &str,
        item: &str,
        attempt: Option<Attempt<'_>>,
        failure: &Failure,
        last: bool,
    ) -> Result<(), RunError>;
    fn retry_failed(&self, stage: &str, which: RetryFailed) -> Result<(), RunError>;
    fn retry_items(&self, stage: &str, items: &[String]) -> Result<u64, RunError>;
    fn summary(&self, stage: &str) -> Result<StageSummary, RunError>;
    /// Number of pending units whose lease ends after `now`.
    fn count_leased(&self, stage: &str, now: i64) -> Result<u64, RunError>;
    fn state(&self, stage: &str, item: &str) -> Result<Option<UnitState>, RunError>;
    fn states(&self, stage: &str) -> Result<Vec<(String, UnitState)>, RunError>;
}

/// Units that several processes may work on, and the processes.
pub(super) trait OfferStore {
    fn is_shared(&self) -> bool;
    /// Unix time in milliseconds, by the clock with which leases of this journal are compared.
    fn now_millis(&self) -> Result<i64, RunError>;
    fn offer(&self, round: &str, stage: &str, items: &[String]) -> Result<(), RunError>;
    fn clear_offers(&self) -> Result<(), RunError>;
    fn withdraw(&self, round: &str, stage: &str, item: &str) -> Result<(), RunError>;
    fn sweep_offers(&self, round: &str) -> Result<OfferCounts, RunError>;
    fn offered(&self, round: &str) -> Result<Vec<String>, RunError>;
    fn offered_from(&self, round: &str, stage: &str, item: &str) -> Result<Option<i64>, RunError>;
    /// `is_held` tells which items this handle has leased already.
    fn lease_offer(
        &self,
        request: LeaseRequest<'_>,
        is_held: &dyn Fn(&str) -> bool,
    ) -> Result<Option<LeasedOffer>, RunError>;
    fn postpone(
        &self,
        round: &str,
        attempt: Attempt<'_>,
        failures: &str,
        until_millis: i64,
    ) -> Result<(), RunError>;
    fn beat(&self, about: &str, seconds: i64) -> Result<(), RunError>;
    fn leave(&self) -> Result<(), RunError>;
    /// What describes each worker that is alive, and the seconds since its last sign of life.
    fn members(&self) -> Result<Vec<(String, u64)>, RunError>;
    fn remove_dead_members(&self) -> Result<(), RunError>;
    fn has_calls_elsewhere(&self) -> Result<bool, RunError>;
}

pub(super) trait CallStore {
    /// State and reply (JSON text) of a call.
    fn call(&self, id: &str) -> Result<Option<(CallState, Option<String>)>, RunError>;
    fn reserve(
        &self,
        id: &str,
        most: Reservation,
        cap: BudgetCap,
        attempt: Option<Attempt<'_>>,
    ) -> Result<(), ReserveError>;
    /// Records the reply, durably.
    fn settle(&self, id: &str, used: Reservation, reply: &str) -> Result<(), RunError>;
    fn release(&self, id: &str) -> Result<(), RunError>;
    fn mark_uncertain(&self, id: &str) -> Result<(), RunError>;
    fn spent(&self) -> Result<Spent, RunError>;
}

/// The steps of trajectories, as JSON text.
pub(super) trait StepStore {
    fn append(
        &self,
        trajectory: &str,
        position: u64,
        payload: &str,
        attempt: Option<Attempt<'_>>,
    ) -> Result<(), RunError>;
    fn events(&self, trajectory: &str) -> Result<Vec<(u64, String)>, RunError>;
    /// Number of steps.
    fn count_events(&self, trajectory: &str) -> Result<u64, RunError>;
    fn clear_events(&self, trajectory: &str, attempt: Option<Attempt<'_>>) -> Result<(), RunError>;
}

/// Values as JSON text.
pub(super) trait MetadataStore {
    /// `synced`: on the disk before this returns.
    fn set_metadata(&self, key: &str, value: &str, synced: bool) -> Result<(), RunError>;
    fn metadata(&self, key: &str) -> Result<Option<String>, RunError>;
    fn metadata_with_prefix(&self, prefix: &str) -> Result<Vec<(String, String)>, RunError>;
    fn work_by_hand(&self) -> Result<u64, RunError>;
}

pub(super) trait BatchStore {
    fn queue_for_batch(
        &self,
        id: &str,
        most: Reservation,
        cap: BudgetCap,
        request: BatchRequest<'_>,
        attempt: Option<Attempt<'_>>,
    ) -> Result<(), ReserveError>;
    fn queued_calls(&self, teacher: &str) -> Result<Vec<(String, u64)>, RunError>;
    fn has_batched_calls(&self) -> Result<bool, RunError>;
    fn create_batches(&self, teacher: &str, batches: &[Vec<String>]) -> Result<(), RunError>;
    fn all_open_batches(&self) -> Result<Vec<Batch>, RunError>;
    fn batch_file(&self, name: &str) -> Result<String, RunError>;
    fn pending_calls(&self, name: &str) -> Result<Vec<PendingCall>, RunError>;
    fn batch_calls(&self, name: &str) -> Result<Vec<String>, RunError>;
    fn batched_request(&self, call: &str) -> Result<Option<Digest>, RunError>;
    fn batch_uploaded(&self, name: &str, file: &str) -> Result<(), RunError>;
    fn batch_requested(&self, name: &str) -> Result<(), RunError>;
    fn batch_created(&self, name: &str, remote: &str) -> Result<(), RunError>;
    fn close_batch(&self, name: &str) -> Result<(), RunError>;
    fn discard_batch(&self, name: &str) -> Result<(), RunError>;
}
