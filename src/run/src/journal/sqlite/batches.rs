//! Calls that are sent in batches.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::backend::BatchStore;
use super::super::batches::no_batch;
use super::super::leased::Attempt;
use super::super::{Batch, BatchRequest, BudgetCap, PendingCall, Reservation, ReserveError};
use super::calls::reserve_as;
use super::units::check_attempt;
use super::{SqliteJournal, writing};
use crate::RunError;
use pybench_types::id::Digest;

pub(super) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS batch (
    name TEXT PRIMARY KEY, teacher TEXT NOT NULL, wave INTEGER NOT NULL, requests INTEGER NOT NULL,
    file TEXT, asked INTEGER NOT NULL DEFAULT 0, remote TEXT, closed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS noted (
    call TEXT PRIMARY KEY, teacher TEXT NOT NULL, batch TEXT, request TEXT NOT NULL, line TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS noted_by_batch ON noted (batch);
";

/// Deletes queued calls that were never sent.
pub(super) const DELETE_UNSENT: &str = "
DELETE FROM call WHERE state = 'batched' AND id IN (SELECT call FROM noted WHERE batch IS NULL);
DELETE FROM noted WHERE batch IS NULL;
";

const COLUMNS: &str = "name, teacher, wave, requests, file, asked, remote";

fn read_batch(row: &Row<'_>) -> rusqlite::Result<Batch> {
    Ok(Batch {
        name: row.get(0)?,
        teacher: row.get(1)?,
        wave: row.get(2)?,
        requests: row.get(3)?,
        file: row.get(4)?,
        asked: row.get(5)?,
        remote: row.get(6)?,
    })
}

impl BatchStore for SqliteJournal {
    fn queue_for_batch(
        &self,
        id: &str,
        most: Reservation,
        cap: BudgetCap,
        request: BatchRequest<'_>,
        attempt: Option<Attempt<'_>>,
    ) -> Result<(), ReserveError> {
        let mut connection = self.lock();
        let transaction = writing(&mut connection).map_err(RunError::from)?;
        check_attempt(&transaction, attempt)?;
        reserve_as(&transaction, "batched", id, most, cap)?;
        let queued = transaction.execute(
            "INSERT INTO noted (call, teacher, request, line) VALUES (?1, ?2, ?3, ?4)",
            params![id, request.teacher, request.request.as_str(), request.line],
        );
        queued.map_err(RunError::from)?;
        transaction.commit().map_err(RunError::from)?;
        Ok(())
    }

    fn queued_calls(&self, teacher: &str) -> Result<Vec<(String, u64)>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT call, length(CAST(line AS BLOB)) FROM noted
             WHERE teacher = ?1 AND batch IS NULL ORDER BY call",
        )?;
        let rows = statement.query_map([teacher], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn has_batched_calls(&self) -> Result<bool, RunError> {
        let any = "SELECT EXISTS (SELECT 1 FROM noted)";
        Ok(self.lock().query_row(any, [], |row| row.get(0))?)
    }

    fn create_batches(&self, teacher: &str, batches: &[Vec<String>]) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = writing(&mut connection)?;
        let wave: u64 = transaction.query_row(
            "SELECT COALESCE(MAX(wave), 0) + 1 FROM batch WHERE teacher = ?1",
            [teacher],
            |row| row.get(0),
        )?;
        for calls in batches {
            let name = Digest::of_json(&(teacher, wave, calls)).short().to_owned();
            transaction.execute(
                "INSERT INTO batch (name, teacher, wave, requests) VALUES (?1, ?2, ?3, ?4)",
                params![name, teacher, wave, calls.len() as u64],
            )?;
            let mut put = transaction.prepare("UPDATE noted SET batch = ?1 WHERE call = ?2")?;
            for call in calls {
                put.execute([&name, call])?;
            }
        }
        transaction.commit()?;
        Ok(())
    }

    fn all_open_batches(&self) -> Result<Vec<Batch>, RunError> {
        let connection = self.lock();
        if !has_batches(&connection)? {
            return Ok(Vec::new());
        }
        let mut statement = connection.prepare(&format!(
            "SELECT {COLUMNS} FROM batch WHERE closed = 0 ORDER BY teacher, wave, rowid"
        ))?;
        let rows = statement.query_map([], read_batch)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn batch_file(&self, name: &str) -> Result<String, RunError> {
        let connection = self.lock();
        let mut statement =
            connection.prepare("SELECT line FROM noted WHERE batch = ?1 ORDER BY call")?;
        let mut rows = statement.query([name])?;
        let mut file = String::new();
        while let Some(row) = rows.next()? {
            file += row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
            file.push('\n');
        }
        Ok(file)
    }

    fn pending_calls(&self, name: &str) -> Result<Vec<PendingCall>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT noted.call, noted.request, call.micro_usd, call.tokens
             FROM noted JOIN call ON call.id = noted.call
             WHERE noted.batch = ?1 AND call.state = 'batched' ORDER BY noted.call",
        )?;
        let rows = statement.query_map([name], |row| {
            let (micro_usd, tokens) = (row.get(2)?, row.get(3)?);
            let reserved = Reservation { micro_usd, tokens };
            Ok((row.get(0)?, row.get::<_, String>(1)?, reserved))
        })?;
        rows.map(|row| {
            let (call, request, reserved) = row?;
            Ok(PendingCall {
                call,
                request: serde_json::from_value(request.into())?,
                reserved,
            })
        })
        .collect()
    }

    fn batch_calls(&self, name: &str) -> Result<Vec<String>, RunError> {
        let connection = self.lock();
        let mut statement =
            connection.prepare("SELECT call FROM noted WHERE batch = ?1 ORDER BY call")?;
        let rows = statement.query_map([name], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn batched_request(&self, call: &str) -> Result<Option<Digest>, RunError> {
        let request: Option<String> = self
            .lock()
            .query_row("SELECT request FROM noted WHERE call = ?1", [call], |row| {
                row.get(0)
            })
            .optional()?;
        let request = request.map(|request| serde_json::from_value(request.into()));
        Ok(request.transpose()?)
    }

    fn batch_uploaded(&self, name: &str, file: &str) -> Result<(), RunError> {
        self.change_batch("UPDATE batch SET file = ?2 WHERE name = ?1", name, file)
    }

    fn batch_requested(&self, name: &str) -> Result<(), RunError> {
        self.change_batch("UPDATE batch SET asked = ?2 WHERE name = ?1", name, 1)
    }

    fn batch_created(&self, name: &str, remote: &str) -> Result<(), RunError> {
        self.change_batch("UPDATE batch SET remote = ?2 WHERE name = ?1", name, remote)
    }

    fn close_batch(&self, name: &str) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = writing(&mut connection)?;
        transaction.execute("UPDATE batch SET closed = 1 WHERE name = ?1", [name])?;
        transaction.execute("DELETE FROM noted WHERE batch = ?1", [name])?;
        transaction.commit()?;
        Ok(())
    }

    fn discard_batch(&self, name: &str) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = writing(&mut connection)?;
        transaction.execute(
            "DELETE FROM call WHERE state = 'batched' AND id IN
             (SELECT call FROM noted WHERE batch = ?1)",
            [name],
        )?;
        transaction.execute("DELETE FROM noted WHERE batch = ?1", [name])?;
        transaction.execute("DELETE FROM batch WHERE name = ?1", [name])?;
        transaction.commit()?;
        Ok(())
    }
}

impl SqliteJournal {
    fn change_batch(
        &self,
        statement: &str,
        name: &str,
        value: impl rusqlite::ToSql,
    ) -> Result<(), RunError> {
        match self.lock().execute(statement, params![name, value])? {
            1 => Ok(()),
            _ => Err(no_batch(name)),
        }
    }
}

fn has_batches(connection: &Connection) -> Result<bool, RunError> {
    let table = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'batch')";
    Ok(connection.query_row(table, [], |row| row.get(0))?)
}
