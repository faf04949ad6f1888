//! Paid calls.

use serde_json::Value;

use super::super::backend::CallStore;
use super::super::calls::not_reserved;
use super::super::leased::Attempt;
use super::super::{BudgetCap, CallState, Reservation, ReserveError, Spent};
use super::link::Link;
use super::steps::check_attempt;
use super::{PostgresJournal, signed, unsigned};
use crate::RunError;

/// Adds a call if the limits allow it, and if the attempt at its unit (`$10` to `$12`) is the newest one. The row of totals is
/// locked until the transaction ends, and a trigger counts the call there: reservations of all workers happen one after the
/// other.
const RESERVE: &str = "
    WITH granted AS (
        SELECT 1 FROM spent
        WHERE ($6::bigint IS NULL OR micro_usd <= $6 - $8::bigint)
          AND ($7::bigint IS NULL OR tokens <= $7 - $9::bigint)
          AND NOT EXISTS (SELECT 1 FROM unit WHERE stage = $10 AND item = $11 AND attempts <> $12)
        FOR UPDATE)
    INSERT INTO call (id, state, micro_usd, tokens, holder) SELECT $1, $2, $3, $4, $5 FROM granted";

/// Reserves a call in the state `state`; `false` if the limits do not allow it, or if another worker has the unit.
pub(super) async fn reserve_as(
    link: &mut Link,
    holder: &str,
    state: &str,
    id: &str,
    (most, cap): (Reservation, BudgetCap),
    attempt: Option<Attempt<'_>>,
) -> Result<bool, RunError> {
    let stored = most.stored();
    let number = attempt.map(|attempt| i64::from(attempt.number));
    let added = link
        .execute(
            RESERVE,
            &[
                &id,
                &state,
                &signed(stored.micro_usd),
                &signed(stored.tokens),
                &holder,
                &cap.micro_usd.map(signed),
                &cap.tokens.map(signed),
                &signed(most.micro_usd),
                &signed(most.tokens),
                &attempt.map(|attempt| attempt.stage),
                &attempt.map(|attempt| attempt.item),
                &number,
            ],
        )
        .await?;
    Ok(added == 1)
}

/// Whether this handle has reserved the call: the first try took effect.
pub(super) async fn is_reserved_by(
    link: &mut Link,
    holder: &str,
    id: &str,
) -> Result<bool, RunError> {
    let own = "SELECT 1 FROM call WHERE id = $1 AND holder = $2";
    Ok(link.row(own, &[&id, &holder]).await?.is_some())
}

impl PostgresJournal {
    /// The error of a reservation that was refused.
    pub(super) fn not_granted(
        &self,
        (most, cap): (Reservation, BudgetCap),
        attempt: Option<Attempt<'_>>,
    ) -> Result<(), ReserveError> {
        self.run(async |link, _| check_attempt(link, attempt).await)?;
        self.spent()?.check(most, cap)?;
        Err(ReserveError::OverBudget(
            "other workers had reserved what was left when this call was requested".to_owned(),
        ))
    }
}

impl CallStore for PostgresJournal {
    fn call(&self, id: &str) -> Result<Option<(CallState, Option<String>)>, RunError> {
        let read = "SELECT state, reply FROM call WHERE id = $1";
        let Some(row) = self.run(async |link, _| link.row(read, &[&id]).await)? else {
            return Ok(None);
        };
        let state = serde_json::from_value(Value::String(row.try_get(0)?))?;
        Ok(Some((state, row.try_get(1)?)))
    }

    fn reserve(
        &self,
        id: &str,
        most: Reservation,
        cap: BudgetCap,
        attempt: Option<Attempt<'_>>,
    ) -> Result<(), ReserveError> {
        let limits = (most, cap);
        let granted = self.run(async |link, repeated| {
            if repeated && is_reserved_by(link, &self.holder, id).await? {
                return Ok(true);
            }
            reserve_as(link, &self.holder, "in_flight", id, limits, attempt).await
        })?;
        match granted {
            true => Ok(()),
            false => self.not_granted(limits, attempt),
        }
    }

    fn settle(&self, id: &str, used: Reservation, reply: &str) -> Result<(), RunError> {
        // The inner query sees the state before the update.
        let settle = "UPDATE call SET state = 'settled', micro_usd = $2, tokens = $3, reply = $4 WHERE id = $1
             RETURNING (SELECT old.state FROM call AS old WHERE old.id = $1)";
        let (micro_usd, tokens) = (signed(used.micro_usd), signed(used.tokens));
        let row =
            self.run(async |link, _| link.row(settle, &[&id, &micro_usd, &tokens, &reply]).await)?;
        let Some(row) = row else {
            return Err(not_reserved(id));
        };
        match &self.paid {
            Some(paid) if row.try_get::<_, &str>(0)? != "settled" => paid.add(),
            _ => Ok(()),
        }
    }

    fn release(&self, id: &str) -> Result<(), RunError> {
        let delete = "DELETE FROM call WHERE id = $1 AND state IN ('in_flight', 'batched')";
        self.run(async |link, _| link.execute(delete, &[&id]).await)?;
        Ok(())
    }

    fn mark_uncertain(&self, id: &str) -> Result<(), RunError> {
        let mark = "UPDATE call SET state = 'uncertain' WHERE id = $1 AND state IN ('in_flight', 'batched')";
        self.run(async |link, _| link.execute(mark, &[&id]).await)?;
        Ok(())
    }

    fn spent(&self) -> Result<Spent, RunError> {
        let read = "SELECT calls, uncertain, micro_usd, tokens FROM spent";
        let row = self.run(async |link, _| link.one(read, &[]).await)?;
        Ok(Spent {
            calls: unsigned(row.try_get(0)?),
            uncertain: unsigned(row.try_get(1)?),
            micro_usd: unsigned(row.try_get(2)?),
            tokens: unsigned(row.try_get(3)?),
        })
    }
}
