//! Paid calls in the journal: reserved before, settled after, within hard caps.

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Journal;
use crate::id::Digest;
use crate::run::RunError;

/// Where a paid call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Reserved; the answer is awaited.
    InFlight,
    /// Reserved; it goes, or went, out in a batch, and outlives this process.
    Batched,
    /// Answered; charged as used.
    Settled,
    /// In flight when the process died; charged as reserved.
    Uncertain,
}

/// A call as the journal holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Where it stands.
    pub state: CallState,
    /// The reply, once settled.
    pub reply: Option<Value>,
    /// What was asked, while it is [`CallState::Batched`].
    pub request: Option<Digest>,
}

/// What a call may cost at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reservation {
    /// Millionths of a US dollar.
    pub micro_usd: u64,
    /// Tokens, prompt and completion.
    pub tokens: u64,
}

/// Hard limits; `None` is unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetCap {
    /// Millionths of a US dollar.
    pub micro_usd: Option<u64>,
    /// Tokens, prompt and completion.
    pub tokens: Option<u64>,
}

/// What was spent, calls in flight and uncertain ones included as reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spent {
    /// Calls.
    pub calls: u64,
    /// Of these, uncertain ones.
    pub uncertain: u64,
    /// Millionths of a US dollar.
    pub micro_usd: u64,
    /// Tokens, prompt and completion.
    pub tokens: u64,
}

/// A reservation was refused.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// It would exceed the budget.
    #[error("the budget is used up: {0}")]
    OverBudget(String),
    /// The journal failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Journal {
    /// The call of that id, if it was ever reserved.
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
            CallState::Batched => self.noted_request(id)?,
            _ => None,
        };
        Ok(Some(Call {
            state,
            request,
            reply: reply.as_deref().map(serde_json::from_str).transpose()?,
        }))
    }

    /// Reserve a call's highest cost, in one step with the test against the caps. `id` names one
    /// attempt (`<request id>/<attempt>`): an attempt is reserved once.
    pub fn reserve(&self, id: &str, most: Reservation, cap: BudgetCap) -> Result<(), ReserveError> {
        let mut connection = self.lock();
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(RunError::from)?;
        reserve_as(&transaction, "in_flight", id, most, cap)?;
        transaction.commit().map_err(RunError::from)?;
        Ok(())
    }

    /// The answer came: charge what was used and keep the reply.
    pub fn settle(&self, id: &str, used: Reservation, reply: &Value) -> Result<(), RunError> {
        let changed = self.lock().execute(
            "UPDATE call SET state = 'settled', micro_usd = ?2, tokens = ?3, reply = ?4 WHERE id = ?1",
            params![id, used.micro_usd, used.tokens, reply.to_string()],
        )?;
        if changed == 1 {
            return Ok(());
        }
        Err(RunError::Internal(format!("call {id} was never reserved")))
    }

    /// The call failed in a way that is surely not charged (refused connection, 4xx, 429): forget it.
    pub fn release(&self, id: &str) -> Result<(), RunError> {
        self.lock().execute(
            "DELETE FROM call WHERE id = ?1 AND state IN ('in_flight', 'batched')",
            [id],
        )?;
        Ok(())
    }

    /// The call failed in a way that may have been charged (time-out, broken answer): charge it as reserved.
    pub fn mark_uncertain(&self, id: &str) -> Result<(), RunError> {
        self.lock().execute(
            "UPDATE call SET state = 'uncertain' WHERE id = ?1 AND state IN ('in_flight', 'batched')",
            [id],
        )?;
        Ok(())
    }

    /// What the run spent so far.
    pub fn spent(&self) -> Result<Spent, RunError> {
        spent(&self.lock())
    }
}

/// Adds the call in that state, if the caps allow it.
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
            "{name}: {have} spent or reserved, {want} more asked for, {cap} allowed"
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
    let added = connection.execute(
        "INSERT INTO call (id, state, micro_usd, tokens) VALUES (?1, ?2, ?3, ?4)",
        params![id, state, most.micro_usd, most.tokens],
    );
    added.map_err(RunError::from)?;
    Ok(())
}

fn spent(connection: &Connection) -> Result<Spent, RunError> {
    Ok(connection.query_row(
        "SELECT calls, uncertain, micro_usd, tokens FROM spent",
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
