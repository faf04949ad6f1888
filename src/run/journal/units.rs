//! Units of work in the journal.

use rusqlite::{OptionalExtension, params};
use serde_json::Value;

use super::Journal;
use crate::run::{Failure, RunError, StageSummary, Unit, UnitState};

/// Which units that failed for good are tried anew by the same command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryFailed {
    /// None.
    None,
    /// Failures of ours, of the machine or of an endpoint; a bad item stays failed.
    #[default]
    Ours,
    /// All.
    All,
}

/// A failure, and whether it is final.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitFailure {
    /// Stage name.
    pub stage: String,
    /// Item id.
    pub item: String,
    /// Whether the unit failed for good; otherwise the next command tries it again.
    pub last: bool,
    /// What happened last.
    pub failure: Failure,
}

impl Journal {
    /// Add units in this order; those already there keep their place and state.
    pub fn enqueue(&self, stage: &str, items: &[String]) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let first: u64 = transaction.query_row(
            "SELECT COALESCE(MAX(position) + 1, 0) FROM unit WHERE stage = ?1",
            [stage],
            |row| row.get(0),
        )?;
        for (offset, item) in items.iter().enumerate() {
            transaction.execute(
                "INSERT OR IGNORE INTO unit (stage, item, position) VALUES (?1, ?2, ?3)",
                params![stage, item, first + offset as u64],
            )?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Every unit of a stage, in item order.
    pub fn units(&self, stage: &str) -> Result<Vec<Unit>, RunError> {
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

    /// Units that failed, or failed once and are to be tried again, by stage and in item order.
    pub fn failures(&self) -> Result<Vec<UnitFailure>, RunError> {
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

    /// Stages that have units, by name.
    pub fn stages(&self) -> Result<Vec<String>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare("SELECT DISTINCT stage FROM unit ORDER BY stage")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The outputs of a stage's done units, in item order.
    pub fn outputs<T: serde::de::DeserializeOwned>(&self, stage: &str) -> Result<Vec<T>, RunError> {
        let units = self.units(stage)?;
        let outputs = units.into_iter().filter_map(|unit| unit.output);
        Ok(outputs
            .map(serde_json::from_value)
            .collect::<Result<_, _>>()?)
    }

    /// Take a pending unit for `seconds`; `false` when it is done, failed, or leased to another.
    pub fn lease(&self, stage: &str, item: &str, now: i64, seconds: i64) -> Result<bool, RunError> {
        let changed = self.lock().execute(
            "UPDATE unit SET attempts = attempts + 1, lease_until = ?4
             WHERE stage = ?1 AND item = ?2 AND state = 'pending' AND lease_until <= ?3",
            params![stage, item, now, now + seconds],
        )?;
        Ok(changed == 1)
    }

    /// Until when a pending unit is leased (seconds since 1970); `None` when it is not pending.
    pub fn leased_until(&self, stage: &str, item: &str) -> Result<Option<i64>, RunError> {
        Ok(self
            .lock()
            .query_row(
                "SELECT lease_until FROM unit WHERE stage = ?1 AND item = ?2 AND state = 'pending'",
                [stage, item],
                |row| row.get(0),
            )
            .optional()?)
    }

    /// Move the end of a lease that ends at `from`; `false` when it is held no more. 0 gives the
    /// unit back.
    pub fn move_lease(
        &self,
        stage: &str,
        item: &str,
        from: i64,
        to: i64,
    ) -> Result<bool, RunError> {
        let changed = self.lock().execute(
            "UPDATE unit SET lease_until = ?4
             WHERE stage = ?1 AND item = ?2 AND state = 'pending' AND lease_until = ?3",
            params![stage, item, from, to],
        )?;
        Ok(changed == 1)
    }

    /// Commit a unit's output. Committing again changes nothing.
    pub fn complete(&self, stage: &str, item: &str, output: &Value) -> Result<(), RunError> {
        self.lock().execute(
            "UPDATE unit SET state = 'done', output = ?3, failure = NULL, lease_until = 0
             WHERE stage = ?1 AND item = ?2 AND state <> 'done'",
            params![stage, item, output.to_string()],
        )?;
        Ok(())
    }

    /// Record a failure; `last` makes it final, otherwise the unit goes back to pending.
    pub fn fail(
        &self,
        stage: &str,
        item: &str,
        failure: &Failure,
        last: bool,
    ) -> Result<(), RunError> {
        let state = if last { "failed" } else { "pending" };
        self.lock().execute(
            "UPDATE unit SET state = ?3, failure = ?4, lease_until = 0
             WHERE stage = ?1 AND item = ?2 AND state <> 'done'",
            params![stage, item, state, serde_json::to_string(failure)?],
        )?;
        Ok(())
    }

    /// Make failed units pending again, so that the same command tries them anew.
    pub fn retry_failed(&self, stage: &str, which: RetryFailed) -> Result<(), RunError> {
        let which = match which {
            RetryFailed::None => return Ok(()),
            RetryFailed::Ours => "AND json_extract(failure, '$.kind') <> 'item'",
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

    /// Counts of a stage's units.
    pub fn summary(&self, stage: &str) -> Result<StageSummary, RunError> {
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

    /// Where a unit stands; `None` when it was never enqueued.
    pub fn state(&self, stage: &str, item: &str) -> Result<Option<UnitState>, RunError> {
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

    /// Every unit of a stage and where it stands, in item order.
    pub fn states(&self, stage: &str) -> Result<Vec<(String, UnitState)>, RunError> {
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
