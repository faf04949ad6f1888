//! Paid calls.

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

use super::super::backend::CallStore;
use super::super::calls::{MAX_AMOUNT, not_reserved};
use super::super::leased::Attempt;
use super::super::{BudgetCap, CallState, Reservation, ReserveError, Spent};
use super::units::check_attempt;
use super::{SqliteJournal, synced, writing};
use crate::RunError;

impl CallStore for SqliteJournal {
    fn call(&self, id: &str) -> Result<Option<(CallState, Option<String>)>, RunError> {
        let row = self
            .lock()
            .query_row("SELECT state, reply FROM call WHERE id = ?1", [id], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, Option<String>>(1)?))
            })
            .optional()?;
        let Some((state, reply)) = row else {
            return Ok(None);
        };
        Ok(Some((serde_json::from_value(Value::String(state))?, reply)))
    }

    fn reserve(
        &self,
        id: &str,
        most: Reservation,
        cap: BudgetCap,
        attempt: Option<Attempt<'_>>,
    ) -> Result<(), ReserveError> {
        let mut connection = self.lock();
        let transaction = writing(&mut connection).map_err(RunError::from)?;
        check_attempt(&transaction, attempt)?;
        reserve_as(&transaction, "in_flight", id, most, cap)?;
        transaction.commit().map_err(RunError::from)?;
        Ok(())
    }

    fn settle(&self, id: &str, used: Reservation, reply: &str) -> Result<(), RunError> {
        let connection = self.lock();
        let was_settled = "SELECT state = 'settled' FROM call WHERE id = ?1";
        let was_settled: Option<bool> = connection
            .query_row(was_settled, [id], |row| row.get(0))
            .optional()?;
        let changed = synced(&connection, |connection| {
            connection.execute(
                "UPDATE call SET state = 'settled', micro_usd = ?2, tokens = ?3, reply = ?4 WHERE id = ?1",
                params![id, used.micro_usd, used.tokens, reply],
            )
        })?;
        if changed == 1 {
            return match &self.paid {
                // Still under the lock, so that the number only grows.
                Some(paid) if was_settled == Some(false) => paid.add(),
                _ => Ok(()),
            };
        }
        Err(not_reserved(id))
    }

    fn release(&self, id: &str) -> Result<(), RunError> {
        self.lock().execute(
            "DELETE FROM call WHERE id = ?1 AND state IN ('in_flight', 'batched')",
            [id],
        )?;
        Ok(())
    }

    fn mark_uncertain(&self, id: &str) -> Result<(), RunError> {
        self.lock().execute(
            "UPDATE call SET state = 'uncertain' WHERE id = ?1 AND state IN ('in_flight', 'batched')",
            [id],
        )?;
        Ok(())
    }

    fn spent(&self) -> Result<Spent, RunError> {
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
    spent(connection)?.check(most, cap)?;
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
