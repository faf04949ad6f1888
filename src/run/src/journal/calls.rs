//! Paid calls in the journal: reserved before they are sent and settled afterward, within hard limits.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Journal, synced};
use crate::{Budget, RunError};
use pybench_types::id::Digest;

/// Maximum amount that the journal stores for one call: a million dollars, or a million million tokens. It keeps
/// the totals of up to eight million calls within the 64-bit integers of SQLite, whose sums become inexact floating
/// point numbers beyond them.
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
    fn stored(self) -> Self {
        Self {
            micro_usd: self.micro_usd.min(MAX_AMOUNT),
            tokens: self.tokens.min(MAX_AMOUNT),
        }
    }
}

/// Hard limits of a run; `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

impl Journal {
    /// Reads the call `id`; `None` if it was never reserved.
    pub fn call(&self, id: &str) -> Result<Option<Call>, RunError> {
        let row = self
            .lock()
            .query_row("SELECT state, reply FROM call WHERE id = ?1", [id], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?))
            })
            .optional()?;
        let Some((state, reply)) = row else {
            return Ok(None);
        };
        let state = serde_json::from_value(Value::String(state))?;
        let request = match state {
            CallState::Batched => self.batched_request(id)?,
            _ => None,
        };
        Ok(Some(Call {
            state,
            request,
            reply: reply.as_deref().map(serde_json::from_str).transpose()?,
        }))
    }

    /// Checks the limits and reserves the maximum cost of a call, atomically. `id` names one attempt
    /// (`<request id>/<attempt>`), which can be reserved only once.
    pub fn reserve(&self, id: &str, most: Reservation, cap: BudgetCap) -> Result<(), ReserveError> {
        let mut connection = self.lock();
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(RunError::from)?;
        reserve_as(&transaction, "in_flight", id, most, cap)?;
        transaction.commit().map_err(RunError::from)?;
        Ok(())
    }

    /// Records the reply of a call and charges the actual usage. It is on the disk before this returns, so that a power
    /// cut does not cost it.
    pub fn settle(&self, id: &str, used: Reservation, reply: &Value) -> Result<(), RunError> {
        let used = used.stored();
        let connection = self.lock();
        let was_settled = "SELECT state = 'settled' FROM call WHERE id = ?1";
        let was_settled: Option<bool> = connection
            .query_row(was_settled, [id], |row| row.get(0))
            .optional()?;
        let changed = synced(&connection, |connection| {
            connection.execute(
                "UPDATE call SET state = 'settled', micro_usd = ?2, tokens = ?3, reply = ?4 WHERE id = ?1",
                params![id, used.micro_usd, used.tokens, reply.to_string()],
            )
        })?;
        if changed == 1 {
            return match &self.paid {
                // Still under the lock, so that the number only grows.
                Some(paid) if was_settled == Some(false) => paid.add(),
                _ => Ok(()),
            };
        }
        Err(RunError::Internal(format!(
            "call {id} was settled without a reservation"
        )))
    }

    /// Deletes a call that failed in a way that is certainly not charged (refused connection, 4xx, 429).
    pub fn release(&self, id: &str) -> Result<(), RunError> {
        self.lock().execute(
            "DELETE FROM call WHERE id = ?1 AND state IN ('in_flight', 'batched')",
            [id],
        )?;
        Ok(())
    }

    /// Charges the reserved amount for a call that failed in a way that may be charged (timeout, broken reply).
    pub fn mark_uncertain(&self, id: &str) -> Result<(), RunError> {
        self.lock().execute(
            "UPDATE call SET state = 'uncertain' WHERE id = ?1 AND state IN ('in_flight', 'batched')",
            [id],
        )?;
        Ok(())
    }

    /// Total spent by the run so far.
    pub fn spent(&self) -> Result<Spent, RunError> {
        spent(&self.lock())
    }
}

/// Limits the amounts of calls that an older version stored, and sums these calls again, because the totals are
/// inexact.
pub(super) fn repair_totals(connection: &Connection) -> rusqlite::Result<()> {
    let limited = connection.execute(
        "UPDATE call SET micro_usd = MIN(micro_usd, ?1), tokens = MIN(tokens, ?1)
         WHERE micro_usd > ?1 OR tokens > ?1",
        [MAX_AMOUNT],
    )?;
    if limited > 0 {
        connection.execute(
            "UPDATE spent SET micro_usd = (SELECT SUM(micro_usd) FROM call),
                 tokens = (SELECT SUM(tokens) FROM call)",
            [],
        )?;
    }
    Ok(())
}

/// Inserts a call in the state `state` if the limits allow it.
pub(super) fn reserve_as(
    connection: &Connection,
    state: &str,
    id: &str,
    most: Reservation,
    cap: BudgetCap,
) -> Result<(), ReserveError> {
    let spent = spent(connection)?;
    let over = |name: &str, have: u64, want: u64, cap: Option<u64>| match cap {
        Some(cap) if have.saturating_add(want) > cap => Err(ReserveError::OverBudget(format!(
            "{name}: {have} spent or reserved, {want} more requested, {cap} allowed"
        ))),
        _ => Ok(()),
    };
    over(
        "millionths of a dollar",
        spent.micro_usd,
        most.micro_usd,
        cap.micro_usd,
    )?;
    over("tokens", spent.tokens, most.tokens, cap.tokens)?;
    let most = most.stored();
    let added = connection.execute(
        "INSERT INTO call (id, state, micro_usd, tokens) VALUES (?1, ?2, ?3, ?4)",
        params![id, state, most.micro_usd, most.tokens],
    );
    added.map_err(RunError::from)?;
    Ok(())
}

fn spent(connection: &Connection) -> Result<Spent, RunError> {
    Ok(connection.query_row(
        // An older version let totals grow beyond the integers of SQLite.
        "SELECT calls, uncertain, CAST(micro_usd AS INTEGER), CAST(tokens AS INTEGER) FROM spent",
        [],
        |row| {
            Ok(Spent {
                calls: row.get(0)?,
                uncertain: row.get(1)?,
                micro_usd: row.get(2)?,
                tokens: row.get(3)?,
            })
        },
    )?)
}
