//! Calls that are sent in batches, which an endpoint answers within 24 hours.
//!
//! A queued call is a reserved call together with the request to send. Queued calls are grouped into a batch,
//! which is uploaded, created, polled and closed; each step is recorded before the next one starts. Queued
//! calls that are in no batch are deleted when the journal is opened again, because they were never sent.

use serde::Serialize;

use super::Journal;
use super::calls::{BudgetCap, Reservation, ReserveError, unit_of};
use crate::RunError;
use pybench_types::id::Digest;

/// A request to send in a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchRequest<'a> {
    /// Name of the model.
    pub teacher: &'a str,
    pub request: &'a Digest,
    /// Line of the batch file, without the line break.
    pub line: &'a str,
}

/// A batch of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Batch {
    /// Our name of the batch.
    pub name: String,
    /// Name of the model.
    pub teacher: String,
    /// Round of batches of this model, from 1.
    pub wave: u64,
    pub requests: u64,
    /// ID of the uploaded file at the endpoint.
    pub file: Option<String>,
    /// Whether the endpoint was asked to create the batch; its reply may have been lost.
    pub asked: bool,
    /// ID of the batch at the endpoint.
    pub remote: Option<String>,
}

/// A call of a batch that has no result yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCall {
    pub call: String,
    pub request: Digest,
    pub reserved: Reservation,
}

impl Journal {
    /// Reserves the maximum cost of a call and queues its request, atomically.
    ///
    /// # Errors
    /// As [`Journal::reserve`].
    pub fn queue_for_batch(
        &self,
        id: &str,
        most: Reservation,
        cap: BudgetCap,
        request: BatchRequest<'_>,
    ) -> Result<(), ReserveError> {
        self.as_leased(unit_of(id), |attempt| {
            self.backend
                .queue_for_batch(id, most, cap, request, attempt)
        })
    }

    /// Queued calls of a model that are in no batch yet, with the lengths of their lines in bytes, by ID.
    pub fn queued_calls(&self, teacher: &str) -> Result<Vec<(String, u64)>, RunError> {
        self.backend.queued_calls(teacher)
    }

    /// Whether any queued or batched call still holds a reservation.
    pub fn has_batched_calls(&self) -> Result<bool, RunError> {
        self.backend.has_batched_calls()
    }

    /// Groups queued calls into batches, atomically; together they are the model's next round.
    pub fn create_batches(&self, teacher: &str, batches: &[Vec<String>]) -> Result<(), RunError> {
        self.backend.create_batches(teacher, batches)
    }

    /// Open batches of a model, in order.
    pub fn open_batches(&self, teacher: &str) -> Result<Vec<Batch>, RunError> {
        let mut all = self.all_open_batches()?;
        all.retain(|batch| batch.teacher == teacher);
        Ok(all)
    }

    /// Open batches of all models, in order; none if the journal is of an older version.
    pub fn all_open_batches(&self) -> Result<Vec<Batch>, RunError> {
        self.backend.all_open_batches()
    }

    /// Content of a batch file: one line per call, ordered by call.
    pub fn batch_file(&self, name: &str) -> Result<String, RunError> {
        self.backend.batch_file(name)
    }

    /// Calls of a batch that have no result yet, in file order.
    pub fn pending_calls(&self, name: &str) -> Result<Vec<PendingCall>, RunError> {
        self.backend.pending_calls(name)
    }

    /// All calls of an open batch, in file order.
    pub fn batch_calls(&self, name: &str) -> Result<Vec<String>, RunError> {
        self.backend.batch_calls(name)
    }

    /// Records the ID of the uploaded file of a batch.
    pub fn batch_uploaded(&self, name: &str, file: &str) -> Result<(), RunError> {
        self.backend.batch_uploaded(name, file)
    }

    /// Records that the endpoint is about to be asked to create the batch.
    pub fn batch_requested(&self, name: &str) -> Result<(), RunError> {
        self.backend.batch_requested(name)
    }

    /// Records the ID of the created batch.
    pub fn batch_created(&self, name: &str, remote: &str) -> Result<(), RunError> {
        self.backend.batch_created(name, remote)
    }

    /// Closes a batch of which all calls have a result, and deletes its requests.
    pub fn close_batch(&self, name: &str) -> Result<(), RunError> {
        self.backend.close_batch(name)
    }

    /// Deletes a batch that the endpoint rejected, together with its calls, which were never executed.
    pub fn discard_batch(&self, name: &str) -> Result<(), RunError> {
        self.backend.discard_batch(name)
    }
}

/// The error of a change to a batch that does not exist.
pub(super) fn no_batch(name: &str) -> RunError {
    RunError::Internal(format!("no batch is named {name}"))
}
