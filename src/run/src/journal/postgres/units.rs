//! Units of work.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use tokio_postgres::Row;

use super::super::backend::{UnitStore, VisitOutput};
use super::super::leased::Attempt;
use super::super::{RetryFailed, UnitFailure};
use super::{PostgresJournal, signed, unsigned};
use crate::{Failure, FailureKind, RunError, StageSummary, Unit, UnitState};

/// Items in one statement.
const ITEMS: usize = 5_000;

/// Outputs in one reply; each may be large.
const OUTPUTS: usize = 32;

/// Moves the end of a lease from `$3` to `$4`, or gives the unit back (0), also for the search for the next unit. A wait after a
/// failure, which an offer may have instead of the end of the lease, is kept.
pub(super) const MOVE_LEASE: &str = "WITH moved AS (
        UPDATE unit SET lease_until = $4
        WHERE stage = $1 AND item = $2 AND state = 'pending' AND lease_until = $3 AND holder = $5
        RETURNING item),
    marked AS (
        UPDATE offer SET not_before = $4 * 1000 FROM moved
        WHERE offer.stage = $1 AND offer.item = moved.item AND offer.not_before = $3 * 1000)
    SELECT COUNT(*) FROM moved";

/// The next items, at most [`ITEMS`].
fn chunk(items: &mut dyn Iterator<Item = String>) -> Vec<String> {
    items.take(ITEMS).collect()
}

fn state_of(name: &str) -> Result<UnitState, RunError> {
    Ok(serde_json::from_value(Value::String(name.to_owned()))?)
}

fn read_unit(stage: &str, row: &Row) -> Result<Unit, RunError> {
    let (output, failure): (Option<&str>, Option<&str>) = (row.try_get(4)?, row.try_get(5)?);
    Ok(Unit {
        stage: stage.to_owned(),
        item: row.try_get(0)?,
        position: unsigned(row.try_get(1)?),
        state: state_of(row.try_get(2)?)?,
        attempts: attempts(row, 3)?,
        output: output.map(serde_json::from_str).transpose()?,
        failure: failure.map(serde_json::from_str).transpose()?,
    })
}

fn attempts(row: &Row, column: usize) -> Result<u32, RunError> {
    Ok(u32::try_from(row.try_get::<_, i64>(column)?).unwrap_or(u32::MAX))
}

impl PostgresJournal {
    /// What an attempt that changed nothing means: the unit is done or unknown, which is no error, or another worker has it.
    fn unchanged(&self, attempt: Option<Attempt<'_>>) -> Result<(), RunError> {
        let Some(attempt) = attempt else {
            return Ok(());
        };
        let read =
            "SELECT state = 'done' OR attempts = $3 FROM unit WHERE stage = $1 AND item = $2";
        let number = i64::from(attempt.number);
        let row = self.run(async |link, _| {
            link.row(read, &[&attempt.stage, &attempt.item, &number])
                .await
        })?;
        match row {
            Some(row) if !row.try_get::<_, bool>(0)? => Err(attempt.lost()),
            _ => Ok(()),
        }
    }
}

impl UnitStore for PostgresJournal {
    fn enqueue(
        &self,
        stage: &str,
        items: &mut dyn Iterator<Item = String>,
    ) -> Result<(), RunError> {
        // Sent in several transactions, each of which can be repeated: units that exist keep their positions.
        let mut first = None;
        loop {
            let items = chunk(items);
            if items.is_empty() {
                return Ok(());
            }
            let start = self.run(async |link, _| {
                link.transaction(async |link| {
                    // One worker at a time, so that positions are unique.
                    let lock = "SELECT pg_advisory_xact_lock(hashtextextended($1, 1))";
                    link.query(lock, &[&self.schema]).await?;
                    let next = "SELECT COALESCE(MAX(position) + 1, 0) FROM unit WHERE stage = $1";
                    let next: i64 = link.one(next, &[&stage]).await?.try_get(0)?;
                    let start = first.unwrap_or(next).max(next);
                    let add = "INSERT INTO unit (stage, item, position)
                         SELECT $1, item, $3::bigint + number - 1
                         FROM unnest($2::text[]) WITH ORDINALITY AS items (item, number)
                         ON CONFLICT DO NOTHING";
                    link.execute(add, &[&stage, &items, &start]).await?;
                    Ok(start)
                })
                .await
            })?;
            first = Some(start + signed(items.len() as u64));
        }
    }

    fn pending(
        &self,
        stage: &str,
        items: &mut dyn Iterator<Item = String>,
    ) -> Result<(Vec<usize>, u64), RunError> {
        let read = "SELECT item, position, state = 'pending' FROM unit WHERE stage = $1 AND item = ANY($2)";
        let (mut pending, mut units, mut number) = (Vec::new(), HashSet::new(), 0);
        loop {
            let items = chunk(items);
            if items.is_empty() {
                let other = units.len() - pending.len();
                return Ok((pending, other as u64));
            }
            let rows = self.run(async |link, _| link.query(read, &[&stage, &items]).await)?;
            let mut known = HashMap::new();
            for row in &rows {
                let unit: (i64, bool) = (row.try_get(1)?, row.try_get(2)?);
                known.insert(row.try_get::<_, &str>(0)?, unit);
            }
            for item in &items {
                if let Some((unit, is_pending)) = known.get(item.as_str())
                    && units.insert(*unit)
                    && *is_pending
                {
                    pending.push(number);
                }
                number += 1;
            }
        }
    }

    fn units(&self, stage: &str) -> Result<Vec<Unit>, RunError> {
        let read = "SELECT item, position, state, attempts, output, failure FROM unit
             WHERE stage = $1 ORDER BY position";
        let rows = self.run(async |link, _| link.query(read, &[&stage]).await)?;
        rows.iter().map(|row| read_unit(stage, row)).collect()
    }

    fn failures(&self) -> Result<Vec<UnitFailure>, RunError> {
        let read =
            "SELECT stage, item, state = 'failed', failure FROM unit WHERE failure IS NOT NULL
             ORDER BY stage, position";
        let rows = self.run(async |link, _| link.query(read, &[]).await)?;
        let failures = rows.iter().map(|row| {
            Ok(UnitFailure {
                stage: row.try_get(0)?,
                item: row.try_get(1)?,
                last: row.try_get(2)?,
                failure: serde_json::from_str(row.try_get(3)?)?,
            })
        });
        failures.collect()
    }

    fn stages(&self) -> Result<Vec<String>, RunError> {
        let read = "SELECT DISTINCT stage FROM unit ORDER BY stage";
        let rows = self.run(async |link, _| link.query(read, &[]).await)?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    fn each_output(&self, stage: &str, visit: &mut VisitOutput<'_>) -> Result<(), RunError> {
        // Outputs never change, so they need not be read in one transaction.
        let list =
            "SELECT item FROM unit WHERE stage = $1 AND state = 'done' AND output IS NOT NULL
             ORDER BY position";
        let read =
            "SELECT item, output FROM unit WHERE stage = $1 AND item = ANY($2) ORDER BY position";
        let rows = self.run(async |link, _| link.query(list, &[&stage]).await)?;
        let items: Vec<String> = rows
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<_, _>>()?;
        drop(rows);
        for items in items.chunks(OUTPUTS) {
            let rows = self.run(async |link, _| link.query(read, &[&stage, &items]).await)?;
            for row in &rows {
                visit(row.try_get(0)?, row.try_get(1)?)?;
            }
        }
        Ok(())
    }

    fn output(&self, stage: &str, item: &str) -> Result<Option<String>, RunError> {
        let read = "SELECT output FROM unit
             WHERE stage = $1 AND item = $2 AND state = 'done' AND output IS NOT NULL";
        let row = self.run(async |link, _| link.row(read, &[&stage, &item]).await)?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    fn lease(
        &self,
        stage: &str,
        item: &str,
        now: i64,
        until: i64,
    ) -> Result<Option<u32>, RunError> {
        let own = "SELECT attempts FROM unit WHERE stage = $1 AND item = $2 AND state = 'pending'
             AND lease_until = $3 AND holder = $4";
        let lease = "UPDATE unit SET attempts = attempts + 1, lease_until = $4, holder = $5
             WHERE stage = $1 AND item = $2 AND state = 'pending' AND lease_until <= $3
             RETURNING attempts";
        let row = self.run(async |link, repeated| {
            if repeated {
                let own = link
                    .row(own, &[&stage, &item, &until, &self.holder])
                    .await?;
                if own.is_some() {
                    return Ok(own);
                }
            }
            link.row(lease, &[&stage, &item, &now, &until, &self.holder])
                .await
        })?;
        row.map(|row| attempts(&row, 0)).transpose()
    }

    fn leased_until(&self, stage: &str, item: &str) -> Result<Option<i64>, RunError> {
        let read =
            "SELECT lease_until FROM unit WHERE stage = $1 AND item = $2 AND state = 'pending'";
        let row = self.run(async |link, _| link.row(read, &[&stage, &item]).await)?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    fn move_lease(&self, stage: &str, item: &str, from: i64, to: i64) -> Result<bool, RunError> {
        let own = "SELECT 1 FROM unit WHERE stage = $1 AND item = $2 AND state = 'pending'
             AND lease_until = $3 AND holder = $4";
        self.run_apart(async |link, repeated| {
            if repeated {
                let moved = link.row(own, &[&stage, &item, &to, &self.holder]).await?;
                if moved.is_some() {
                    return Ok(true);
                }
            }
            let moved = link
                .one(MOVE_LEASE, &[&stage, &item, &from, &to, &self.holder])
                .await?;
            Ok(moved.try_get::<_, i64>(0)? == 1)
        })
    }

    fn complete(
        &self,
        stage: &str,
        item: &str,
        attempt: Option<Attempt<'_>>,
        output: &str,
    ) -> Result<(), RunError> {
        let complete = "WITH done AS (
                 UPDATE unit SET state = 'done', output = $3, failure = NULL, lease_until = 0
                 WHERE stage = $1 AND item = $2 AND state <> 'done' AND ($4::bigint IS NULL OR attempts = $4)
                 RETURNING item),
             deleted AS (DELETE FROM event USING done WHERE event.trajectory = done.item)
             SELECT COUNT(*) FROM done";
        let number = attempt.map(|attempt| i64::from(attempt.number));
        let row =
            self.run(async |link, _| link.one(complete, &[&stage, &item, &output, &number]).await)?;
        match row.try_get::<_, i64>(0)? {
            0 => self.unchanged(attempt),
            _ => Ok(()),
        }
    }

    fn fail(
        &self,
        stage: &str,
        item: &str,
        attempt: Option<Attempt<'_>>,
        failure: &Failure,
        last: bool,
    ) -> Result<(), RunError> {
        let fail = "UPDATE unit SET state = $3, failure = $4, lease_until = 0
             WHERE stage = $1 AND item = $2 AND state <> 'done' AND ($5::bigint IS NULL OR attempts = $5)";
        let state = if last { "failed" } else { "pending" };
        let (failure, number) = (
            serde_json::to_string(failure)?,
            attempt.map(|attempt| i64::from(attempt.number)),
        );
        let changed = self.run(async |link, _| {
            link.execute(fail, &[&stage, &item, &state, &failure, &number])
                .await
        })?;
        match changed {
            0 => self.unchanged(attempt),
            _ => Ok(()),
        }
    }

    fn retry_failed(&self, stage: &str, which: RetryFailed) -> Result<(), RunError> {
        if which == RetryFailed::None {
            return Ok(());
        }
        let read = "SELECT item, failure FROM unit WHERE stage = $1 AND state = 'failed'";
        let rows = self.run(async |link, _| link.query(read, &[&stage]).await)?;
        let mut items: Vec<String> = Vec::new();
        for row in &rows {
            let failure: Option<&str> = row.try_get(1)?;
            let failure: Option<Failure> = failure.map(serde_json::from_str).transpose()?;
            let is_bad_item = failure.is_none_or(|failure| failure.kind == FailureKind::Item);
            if which == RetryFailed::All || !is_bad_item {
                items.push(row.try_get(0)?);
            }
        }
        self.retry_items(stage, &items)?;
        Ok(())
    }

    /// A repeated statement counts no unit that the first one has changed.
    fn retry_items(&self, stage: &str, items: &[String]) -> Result<u64, RunError> {
        let retry = "UPDATE unit SET state = 'pending' WHERE stage = $1 AND state = 'failed' AND item = ANY($2)";
        let mut count = 0;
        for items in items.chunks(ITEMS) {
            count += self.run(async |link, _| link.execute(retry, &[&stage, &items]).await)?;
        }
        Ok(count)
    }

    fn summary(&self, stage: &str) -> Result<StageSummary, RunError> {
        let count = "SELECT COUNT(*) FILTER (WHERE state = 'done'), COUNT(*) FILTER (WHERE state = 'failed'),
             COUNT(*) FILTER (WHERE state = 'pending') FROM unit WHERE stage = $1";
        let row = self.run(async |link, _| link.one(count, &[&stage]).await)?;
        Ok(StageSummary {
            done: unsigned(row.try_get(0)?),
            failed: unsigned(row.try_get(1)?),
            pending: unsigned(row.try_get(2)?),
        })
    }

    fn count_leased(&self, stage: &str, now: i64) -> Result<u64, RunError> {
        let count =
            "SELECT COUNT(*) FROM unit WHERE stage = $1 AND state = 'pending' AND lease_until > $2";
        let row = self.run(async |link, _| link.one(count, &[&stage, &now]).await)?;
        Ok(unsigned(row.try_get(0)?))
    }

    fn state(&self, stage: &str, item: &str) -> Result<Option<UnitState>, RunError> {
        let read = "SELECT state FROM unit WHERE stage = $1 AND item = $2";
        let row = self.run(async |link, _| link.row(read, &[&stage, &item]).await)?;
        row.map(|row| state_of(row.try_get(0)?)).transpose()
    }

    fn states(&self, stage: &str) -> Result<Vec<(String, UnitState)>, RunError> {
        let read = "SELECT item, state FROM unit WHERE stage = $1 ORDER BY position";
        let rows = self.run(async |link, _| link.query(read, &[&stage]).await)?;
        let states = rows
            .iter()
            .map(|row| Ok((row.try_get(0)?, state_of(row.try_get(1)?)?)));
        states.collect()
    }
}
