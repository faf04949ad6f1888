//! Paid calls in the journal: reserved before they are sent and settled afterward, within hard limits.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Journal;
use crate::{Budget, RunError};
use pybench_types::id::Digest;

/// Maximum amount that the journal stores for one call: a million dollars, or a million million tokens. It keeps
/// the totals of up to eight million calls within 64-bit integers.
pub(super) const MAX_AMOUNT: u64 = 1 << 40;

/// State of a paid call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Reserved and sent; the reply is pending.
    InFlight,
    /// Reserved as part of a batch, which continues after this process ends.
    Batched,
    /// Answered; charged with the actual usage.
    Settled,
    /// In flight when the process died; charged with the reserved amount.
    Uncertain,
}

/// A call as recorded in the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub state: CallState,
    /// The reply, once settled.
    pub reply: Option<Value>,
    /// Digest of the request, while the state is [`CallState::Batched`].
    pub request: Option<Digest>,
}

/// Maximum cost of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Millionths of a US dollar.
    pub micro_usd: u64,
    /// Tokens, prompt and completion.
    pub tokens: u64,
}

impl Reservation {
    /// What the journal stores: both amounts, each at most [`MAX_AMOUNT`].
    pub(super) fn stored(self) -> Self {
        Self {
            micro_usd: self.micro_usd.min(MAX_AMOUNT),
            tokens: self.tokens.min(MAX_AMOUNT),
        }
    }
}

/// Hard limits of a run; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetCap {
    /// Millionths of a US dollar.
    pub micro_usd: Option<u64>,
    /// Tokens, prompt and completion.
    pub tokens: Option<u64>,
}

impl BudgetCap {
    /// The budget of a recipe, rounded down.
    pub fn of(budget: &Budget) -> Self {
        Self {
            // The cast saturates.
            micro_usd: budget.usd.map(|usd| (usd * 1e6) as u64),
            tokens: budget.tokens,
        }
    }
}

/// Total spent. Calls in flight and uncertain calls count with their reserved amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    pub calls: u64,
    /// Number of uncertain calls among them.
    pub uncertain: u64,
    /// Millionths of a US dollar.
    pub micro_usd: u64,
    /// Tokens, prompt and completion.
    pub tokens: u64,
}

/// Why a reservation failed.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// It would exceed the budget.
    #[error("the budget is used up: {0}")]
    OverBudget(String),
    /// The journal could not be accessed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Spent {
    /// Checks that another call stays within the limits.
    pub(super) fn check(&self, most: Reservation, cap: BudgetCap) -> Result<(), ReserveError> {
        let over = |name: &str, have: u64, want: u64, cap: Option<u64>| match cap {
            Some(cap) if have.saturating_add(want) > cap => Err(ReserveError::OverBudget(format!(
                "{name}: {have} spent or reserved, {want} more requested, {cap} allowed"
            ))),
            _ => Ok(()),
        };
        over(
            "millionths of a dollar",
            self.micro_usd,
            most.micro_usd,
            cap.micro_usd,
        )?;
        over("tokens", self.tokens, most.tokens, cap.tokens)
    }
}

impl Journal {
    /// Reads the call `id`; `None` if it was never reserved.
    pub fn call(&self, id: &str) -> Result<Option<Call>, RunError> {
        let Some((state, reply)) = self.backend.call(id)? else {
            return Ok(None);
        };
        let request = match state {
            CallState::Batched => self.backend.batched_request(id)?,
            _ => None,
        };
        Ok(Some(Call {
            state,
            request,
            reply: reply.as_deref().map(serde_json::from_str).transpose()?,
        }))
    }

    /// Checks the limits and reserves the maximum cost of a call, atomically. `id` names one attempt
    /// (`<request id>/<attempt>`), which can be reserved only once. The request ID of a trajectory begins with the name of its unit.
    ///
    /// # Errors
    /// [`ReserveError::OverBudget`]; [`RunError::LeaseLost`] if this handle leased that unit and another worker leased it
    /// since, which makes the call itself.
    pub fn reserve(&self, id: &str, most: Reservation, cap: BudgetCap) -> Result<(), ReserveError> {
        self.as_leased(unit_of(id), |attempt| {
            self.backend.reserve(id, most, cap, attempt)
        })
    }

    /// Records the reply of a call and charges the actual usage. It is on the disk before this returns, so that a power
    /// cut does not cost it. A reply that arrives after the worker lost its lease is charged and kept as well.
    pub fn settle(&self, id: &str, used: Reservation, reply: &Value) -> Result<(), RunError> {
        self.backend.settle(id, used.stored(), &reply.to_string())
    }

    /// Deletes a call that failed in a way that is certainly not charged (refused connection, 4xx, 429).
    pub fn release(&self, id: &str) -> Result<(), RunError> {
        self.backend.release(id)
    }

    /// Charges the reserved amount for a call that failed in a way that may be charged (timeout, broken reply).
    pub fn mark_uncertain(&self, id: &str) -> Result<(), RunError> {
        self.backend.mark_uncertain(id)
    }

    /// Total spent by the run so far.
    pub fn spent(&self) -> Result<Spent, RunError> {
        self.backend.spent()
    }
}

/// Name of the unit that a call belongs to, if it is one of a trajectory.
pub(super) fn unit_of(call: &str) -> &str {
    call.split_once('/').map_or(call, |(unit, _)| unit)
}

/// The error of a reply to a call that the journal does not have.
pub(super) fn not_reserved(id: &str) -> RunError {
    RunError::Internal(format!("call {id} was settled without a reservation"))
}
