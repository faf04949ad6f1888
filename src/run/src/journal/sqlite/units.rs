//! Units of work.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

use super::super::backend::{UnitStore, VisitOutput};
use super::super::leased::Attempt;
use super::super::{RetryFailed, UnitFailure};
use super::{SqliteJournal, writing};
use crate::{Failure, RunError, StageSummary, Unit, UnitState};

/// The position of the next new unit: one entry of an index, however many units the stage has.
pub(super) const NEXT_POSITION: &str =
    "SELECT COALESCE(MAX(position) + 1, 0) FROM unit WHERE stage = ?1";

impl UnitStore for SqliteJournal {
    fn enqueue(
        &self,
        stage: &str,
        items: &mut dyn Iterator<Item = String>,
    ) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = writing(&mut connection)?;
        let first: u64 = transaction.query_row(NEXT_POSITION, [stage], |row| row.get(0))?;
        let mut insert = transaction.prepare_cached(
            "INSERT OR IGNORE INTO unit (stage, item, position) VALUES (?1, ?2, ?3)",
        )?;
        for (offset, item) in items.enumerate() {
            insert.execute(params![stage, item, first + offset as u64])?;
        }
        drop(insert);
        transaction.commit()?;
        Ok(())
    }

    fn pending(
        &self,
        stage: &str,
        items: &mut dyn Iterator<Item = String>,
    ) -> Result<(Vec<usize>, u64), RunError> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached("SELECT position, state FROM unit WHERE stage = ?1 AND item = ?2")?;
        let (mut pending, mut units) = (Vec::new(), HashSet::new());
        for (number, item) in items.enumerate() {
            let unit = statement.query_row([stage, &item], |row| {
                let is_pending = row.get_ref(1)?.as_str()? == "pending";
                Ok((row.get::<_, u64>(0)?, is_pending))
            });
            if let Some((unit, is_pending)) = unit.optional()?
                && units.insert(unit)
                && is_pending
            {
                pending.push(number);
            }
        }
        let other = units.len() - pending.len();
        Ok((pending, other as u64))
    }

    fn units(&self, stage: &str) -> Result<Vec<Unit>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT item, position, state, attempts, output, failure FROM unit
             WHERE stage = ?1 ORDER BY position",
        )?;
        let rows = statement.query_map([stage], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, u64>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, u32>(3)?,
                row.get::<_, Option<String>>(4)?,
                row.get::<_, Option<String>>(5)?,
            ))
        })?;
        rows.map(|row| {
            let (item, position, state, attempts, output, failure) = row?;
            Ok(Unit {
                stage: stage.to_owned(),
                item,
                position,
                state: serde_json::from_value(Value::String(state))?,
                attempts,
                output: output.as_deref().map(serde_json::from_str).transpose()?,
                failure: failure.as_deref().map(serde_json::from_str).transpose()?,
            })
        })
        .collect()
    }

    fn failures(&self) -> Result<Vec<UnitFailure>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT stage, item, state, failure FROM unit WHERE failure IS NOT NULL
             ORDER BY stage, position",
        )?;
        let rows = statement.query_map([], |row| {
            let (stage, item): (String, String) = (row.get(0)?, row.get(1)?);
            Ok((
                stage,
                item,
                row.get::<_, String>(2)?,
                row.get::<_, String>(3)?,
            ))
        })?;
        rows.map(|row| {
            let (stage, item, state, failure) = row?;
            Ok(UnitFailure {
                stage,
                item,
                last: state == "failed",
                failure: serde_json::from_str(&failure)?,
            })
        })
        .collect()
    }

    fn stages(&self) -> Result<Vec<String>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare("SELECT DISTINCT stage FROM unit ORDER BY stage")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn each_output(&self, stage: &str, visit: &mut VisitOutput<'_>) -> Result<(), RunError> {
        let connection = self.lock();
        // Only the items are sorted, not the outputs.
        let mut statement = connection.prepare_cached(
            "SELECT unit.item, unit.output FROM
             (SELECT item FROM unit WHERE stage = ?1 AND state = 'done' AND output IS NOT NULL
              ORDER BY position LIMIT -1) AS ordered
             CROSS JOIN unit WHERE unit.stage = ?1 AND unit.item = ordered.item",
        )?;
        let mut rows = statement.query([stage])?;
        while let Some(row) = rows.next()? {
            let (item, output) = (row.get_ref(0)?.as_str(), row.get_ref(1)?.as_str());
            let output = output.map_err(rusqlite::Error::from)?;
            visit(item.map_err(rusqlite::Error::from)?, output)?;
        }
        Ok(())
    }

    fn output(&self, stage: &str, item: &str) -> Result<Option<String>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached(
            "SELECT output FROM unit
             WHERE stage = ?1 AND item = ?2 AND state = 'done' AND output IS NOT NULL",
        )?;
        let output = statement.query_row([stage, item], |row| row.get::<_, String>(0));
        Ok(output.optional()?)
    }

    fn lease(
        &self,
        stage: &str,
        item: &str,
        now: i64,
        until: i64,
    ) -> Result<Option<u32>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached(
            "UPDATE unit SET attempts = attempts + 1, lease_until = ?4
             WHERE stage = ?1 AND item = ?2 AND state = 'pending' AND lease_until <= ?3
             RETURNING attempts",
        )?;
        let leased = statement.query_row(params![stage, item, now, until], |row| row.get(0));
        Ok(leased.optional()?)
    }

    fn leased_until(&self, stage: &str, item: &str) -> Result<Option<i64>, RunError> {
        Ok(self
            .lock()
            .query_row(
                "SELECT lease_until FROM unit WHERE stage = ?1 AND item = ?2 AND state = 'pending'",
                [stage, item],
                |row| row.get(0),
            )
            .optional()?)
    }

    fn move_lease(&self, stage: &str, item: &str, from: i64, to: i64) -> Result<bool, RunError> {
        let changed = self.execute(
            "UPDATE unit SET lease_until = ?4
             WHERE stage = ?1 AND item = ?2 AND state = 'pending' AND lease_until = ?3",
            params![stage, item, from, to],
        )?;
        Ok(changed == 1)
    }

    fn complete(
        &self,
        stage: &str,
        item: &str,
        attempt: Option<Attempt<'_>>,
        output: &str,
    ) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = writing(&mut connection)?;
        if is_done(&transaction, stage, item)? {
            return Ok(());
        }
        check_attempt(&transaction, attempt)?;
        let changed = transaction
            .prepare_cached(
                "UPDATE unit SET state = 'done', output = ?3, failure = NULL, lease_until = 0
                 WHERE stage = ?1 AND item = ?2",
            )?
            .execute(params![stage, item, output])?;
        if changed == 1 {
            transaction
                .prepare_cached("DELETE FROM event WHERE trajectory = ?1")?
                .execute([item])?;
        }
        transaction.commit()?;
        Ok(())
    }

    fn fail(
        &self,
        stage: &str,
        item: &str,
        attempt: Option<Attempt<'_>>,
        failure: &Failure,
        last: bool,
    ) -> Result<(), RunError> {
        let state = if last { "failed" } else { "pending" };
        let mut connection = self.lock();
        let transaction = writing(&mut connection)?;
        if is_done(&transaction, stage, item)? {
            return Ok(());
        }
        check_attempt(&transaction, attempt)?;
        transaction.execute(
            "UPDATE unit SET state = ?3, failure = ?4, lease_until = 0
             WHERE stage = ?1 AND item = ?2",
            params![stage, item, state, serde_json::to_string(failure)?],
        )?;
        transaction.commit()?;
        Ok(())
    }

    fn retry_failed(&self, stage: &str, which: RetryFailed) -> Result<(), RunError> {
        let which = match which {
            RetryFailed::None => return Ok(()),
            RetryFailed::ExceptBadItems => "AND json_extract(failure, '$.kind') <> 'item'",
            RetryFailed::All => "",
        };
        self.lock().execute(
            &format!(
                "UPDATE unit SET state = 'pending' WHERE stage = ?1 AND state = 'failed' {which}"
            ),
            [stage],
        )?;
        Ok(())
    }

    fn retry_items(&self, stage: &str, items: &[String]) -> Result<u64, RunError> {
        let mut connection = self.lock();
        let transaction = writing(&mut connection)?;
        let mut retry = transaction.prepare_cached(
            "UPDATE unit SET state = 'pending' WHERE stage = ?1 AND item = ?2 AND state = 'failed'",
        )?;
        let mut count = 0;
        for item in items {
            count += retry.execute(params![stage, item])? as u64;
        }
        drop(retry);
        transaction.commit()?;
        Ok(count)
    }

    fn summary(&self, stage: &str) -> Result<StageSummary, RunError> {
        Ok(self.lock().query_row(
            "SELECT COALESCE(SUM(state = 'done'), 0), COALESCE(SUM(state = 'failed'), 0),
                    COALESCE(SUM(state = 'pending'), 0) FROM unit WHERE stage = ?1",
            [stage],
            |row| {
                Ok(StageSummary {
                    done: row.get(0)?,
                    failed: row.get(1)?,
                    pending: row.get(2)?,
                })
            },
        )?)
    }

    fn count_leased(&self, stage: &str, now: i64) -> Result<u64, RunError> {
        let count =
            "SELECT COUNT(*) FROM unit WHERE stage = ?1 AND state = 'pending' AND lease_until > ?2";
        Ok(self
            .lock()
            .query_row(count, params![stage, now], |row| row.get(0))?)
    }

    fn state(&self, stage: &str, item: &str) -> Result<Option<UnitState>, RunError> {
        let state: Option<String> = self
            .lock()
            .query_row(
                "SELECT state FROM unit WHERE stage = ?1 AND item = ?2",
                [stage, item],
                |row| row.get(0),
            )
            .optional()?;
        Ok(state
            .map(|s| serde_json::from_value(s.into()))
            .transpose()?)
    }

    fn states(&self, stage: &str) -> Result<Vec<(String, UnitState)>, RunError> {
        let connection = self.lock();
        let mut statement = connection
            .prepare("SELECT item, state FROM unit WHERE stage = ?1 ORDER BY position")?;
        let rows = statement.query_map([stage], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })?;
        rows.map(|row| {
            let (item, state) = row?;
            Ok((item, serde_json::from_value(Value::String(state))?))
        })
        .collect()
    }
}

/// Whether a unit is done, and so can neither fail nor get another output.
fn is_done(connection: &Connection, stage: &str, item: &str) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM unit WHERE stage = ?1 AND item = ?2 AND state = 'done')",
    )?;
    statement.query_row([stage, item], |row| row.get(0))
}

/// Refuses the write of an attempt that another one has overtaken. The connection is in a transaction that writes.
pub(super) fn check_attempt(
    connection: &Connection,
    attempt: Option<Attempt<'_>>,
) -> Result<(), RunError> {
    let Some(attempt) = attempt else {
        return Ok(());
    };
    let mut statement =
        connection.prepare_cached("SELECT attempts FROM unit WHERE stage = ?1 AND item = ?2")?;
    let newest = statement.query_row([attempt.stage, attempt.item], |row| row.get::<_, u32>(0));
    match newest.optional()? {
        Some(newest) if newest != attempt.number => Err(attempt.lost()),
        _ => Ok(()),
    }
}
