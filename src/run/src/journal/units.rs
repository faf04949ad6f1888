//! Units of work in the journal.

use std::collections::HashSet;

use rusqlite::{OptionalExtension, params};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Journal;
use crate::{Failure, RunError, StageSummary, Unit, UnitState};

/// Which finally failed units a repeated command retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryFailed {
    None,
    /// All except bad items: failures of the machine, of an endpoint, or of pybench.
    #[default]
    ExceptBadItems,
    All,
}

/// The last failure of a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitFailure {
    /// Stage name.
    pub stage: String,
    /// Item id.
    pub item: String,
    /// Whether the failure is final; otherwise the next command retries the unit.
    pub last: bool,
    pub failure: Failure,
}

impl Journal {
    /// Adds units in this order; existing units keep their position and state.
    pub fn enqueue(
        &self,
        stage: &str,
        items: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let first: u64 = transaction.query_row(
            "SELECT COALESCE(MAX(position) + 1, 0) FROM unit WHERE stage = ?1",
            [stage],
            |row| row.get(0),
        )?;
        let mut insert = transaction.prepare_cached(
            "INSERT OR IGNORE INTO unit (stage, item, position) VALUES (?1, ?2, ?3)",
        )?;
        for (offset, item) in items.into_iter().enumerate() {
            insert.execute(params![stage, item.as_ref(), first + offset as u64])?;
        }
        drop(insert);
        transaction.commit()?;
        Ok(())
    }

    /// The numbers of those items whose units are pending, in order and each unit once, and how many other units
    /// the items name.
    pub fn pending(
        &self,
        stage: &str,
        items: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<(Vec<usize>, u64), RunError> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached("SELECT position, state FROM unit WHERE stage = ?1 AND item = ?2")?;
        let (mut pending, mut units) = (Vec::new(), HashSet::new());
        for (number, item) in items.into_iter().enumerate() {
            let unit = statement.query_row([stage, item.as_ref()], |row| {
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

    /// Reads all units of a stage, in item order.
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

    /// Reads the failures of all units, final or not, by stage and in item order.
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

    /// Names of the stages that have units, sorted.
    pub fn stages(&self) -> Result<Vec<String>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare("SELECT DISTINCT stage FROM unit ORDER BY stage")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Reads the outputs of a stage's done units, in item order.
    pub fn outputs<T: DeserializeOwned>(&self, stage: &str) -> Result<Vec<T>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached(
            "SELECT output FROM unit WHERE stage = ?1 AND state = 'done' AND output IS NOT NULL
             ORDER BY position",
        )?;
        let rows = statement.query_map([stage], |row| row.get::<_, String>(0))?;
        rows.map(|output| Ok(serde_json::from_str(&output?)?))
            .collect()
    }

    /// Passes item and output of each done unit of a stage to `visit`, in item order and one at a time. `visit` must
    /// not use the journal.
    ///
    /// # Errors
    /// The journal cannot be read, an output does not parse, or `visit` fails.
    pub fn each_output<T: DeserializeOwned>(
        &self,
        stage: &str,
        mut visit: impl FnMut(&str, T) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
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
            visit(
                item.map_err(rusqlite::Error::from)?,
                serde_json::from_str(output)?,
            )?;
        }
        Ok(())
    }

    /// Reads the output of a unit; `None` if it is not done.
    pub fn output<T: DeserializeOwned>(
        &self,
        stage: &str,
        item: &str,
    ) -> Result<Option<T>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached(
            "SELECT output FROM unit
             WHERE stage = ?1 AND item = ?2 AND state = 'done' AND output IS NOT NULL",
        )?;
        let output = statement.query_row([stage, item], |row| row.get::<_, String>(0));
        match output.optional()? {
            Some(text) => Ok(Some(serde_json::from_str(&text)?)),
            None => Ok(None),
        }
    }

    /// Reads the outputs of these units, one at a time and in this order, and skips units that are not done.
    pub fn outputs_of<'a, T: DeserializeOwned + 'a>(
        &'a self,
        stage: &'a str,
        items: &'a [String],
    ) -> impl Iterator<Item = Result<T, RunError>> + 'a {
        items
            .iter()
            .filter_map(move |item| self.output(stage, item).transpose())
    }

    /// Leases a pending unit for `seconds`; `false` if it is done, failed, or leased by another worker.
    pub fn lease(&self, stage: &str, item: &str, now: i64, seconds: i64) -> Result<bool, RunError> {
        let changed = self.execute(
            "UPDATE unit SET attempts = attempts + 1, lease_until = ?4
             WHERE stage = ?1 AND item = ?2 AND state = 'pending' AND lease_until <= ?3",
            params![stage, item, now, now + seconds],
        )?;
        Ok(changed == 1)
    }

    /// End of the lease of a pending unit (Unix time in seconds); `None` if the unit is not pending.
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

    /// Moves the end of a lease from `from` to `to`; `false` if the lease is no longer held. A `to` of 0
    /// releases the unit.
    pub fn move_lease(
        &self,
        stage: &str,
        item: &str,
        from: i64,
        to: i64,
    ) -> Result<bool, RunError> {
        let changed = self.execute(
            "UPDATE unit SET lease_until = ?4
             WHERE stage = ?1 AND item = ?2 AND state = 'pending' AND lease_until = ?3",
            params![stage, item, from, to],
        )?;
        Ok(changed == 1)
    }

    /// Commits the output of a unit, and deletes the steps recorded under the item's name: a trajectory has them.
    /// Committing again has no effect.
    pub fn complete(&self, stage: &str, item: &str, output: &Value) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let changed = transaction
            .prepare_cached(
                "UPDATE unit SET state = 'done', output = ?3, failure = NULL, lease_until = 0
                 WHERE stage = ?1 AND item = ?2 AND state <> 'done'",
            )?
            .execute(params![stage, item, output.to_string()])?;
        if changed == 1 {
            transaction
                .prepare_cached("DELETE FROM event WHERE trajectory = ?1")?
                .execute([item])?;
        }
        transaction.commit()?;
        Ok(())
    }

    /// Records a failure. `last` makes it final; otherwise the unit becomes pending again.
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

    /// Makes failed units pending again, so that they are retried.
    pub fn retry_failed(&self, stage: &str, which: RetryFailed) -> Result<(), RunError> {
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

    /// Counts a stage's units by state.
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

    /// State of a unit; `None` if it was never enqueued.
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

    /// All units of a stage with their states, in item order.
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
