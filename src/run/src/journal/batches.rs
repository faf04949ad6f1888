//! Calls that are sent in batches, which an endpoint answers within 24 hours.
//!
//! A queued call is a reserved call together with the request to send. Queued calls are grouped into a batch,
//! which is uploaded, created, polled and closed; each step is recorded before the next one starts. Queued
//! calls that are in no batch are deleted when the journal is opened again, because they were never sent.

use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use serde::Serialize;

use super::Journal;
use super::calls::{BudgetCap, Reservation, ReserveError, reserve_as};
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

/// A request to send in a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchRequest<'a> {
    /// Name of the model.
    pub teacher: &'a str,
    pub request: &'a Digest,
    /// Line of the batch file, without the line break.
    pub line: &'a str,
}

/// A batch of calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Batch {
    /// Our name of the batch.
    pub name: String,
    /// Name of the model.
    pub teacher: String,
    /// Round of batches of this model, from 1.
    pub wave: u64,
    pub requests: u64,
    /// ID of the uploaded file at the endpoint.
    pub file: Option<String>,
    /// Whether the endpoint was asked to create the batch; its reply may have been lost.
    pub asked: bool,
    /// ID of the batch at the endpoint.
    pub remote: Option<String>,
}

/// A call of a batch that has no result yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCall {
    pub call: String,
    pub request: Digest,
    pub reserved: Reservation,
}

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

impl Journal {
    /// Reserves the maximum cost of a call and queues its request, atomically.
    pub fn queue_for_batch(
        &self,
        id: &str,
        most: Reservation,
        cap: BudgetCap,
        request: BatchRequest<'_>,
    ) -> Result<(), ReserveError> {
        let mut connection = self.lock();
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(RunError::from)?;
        reserve_as(&transaction, "batched", id, most, cap)?;
        let queued = transaction.execute(
            "INSERT INTO noted (call, teacher, request, line) VALUES (?1, ?2, ?3, ?4)",
            params![id, request.teacher, request.request.as_str(), request.line],
        );
        queued.map_err(RunError::from)?;
        transaction.commit().map_err(RunError::from)?;
        Ok(())
    }

    /// Queued calls of a model that are in no batch yet, with the lengths of their lines in bytes, by ID.
    pub fn queued_calls(&self, teacher: &str) -> Result<Vec<(String, u64)>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT call, length(CAST(line AS BLOB)) FROM noted
             WHERE teacher = ?1 AND batch IS NULL ORDER BY call",
        )?;
        let rows = statement.query_map([teacher], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Whether any queued or batched call still holds a reservation.
    pub fn has_batched_calls(&self) -> Result<bool, RunError> {
        let any = "SELECT EXISTS (SELECT 1 FROM noted)";
        Ok(self.lock().query_row(any, [], |row| row.get(0))?)
    }

    /// Groups queued calls into batches, atomically; together they are the model's next round.
    pub fn create_batches(&self, teacher: &str, batches: &[Vec<String>]) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
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

    /// Open batches of a model, in order.
    pub fn open_batches(&self, teacher: &str) -> Result<Vec<Batch>, RunError> {
        let mut all = self.all_open_batches()?;
        all.retain(|batch| batch.teacher == teacher);
        Ok(all)
    }

    /// Open batches of all models, in order; none if the journal is of an older version.
    pub fn all_open_batches(&self) -> Result<Vec<Batch>, RunError> {
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

    /// Content of a batch file: one line per call, ordered by call.
    pub fn batch_file(&self, name: &str) -> Result<String, RunError> {
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

    /// Calls of a batch that have no result yet, in file order.
    pub fn pending_calls(&self, name: &str) -> Result<Vec<PendingCall>, RunError> {
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

    /// All calls of an open batch, in file order.
    pub fn batch_calls(&self, name: &str) -> Result<Vec<String>, RunError> {
        let connection = self.lock();
        let mut statement =
            connection.prepare("SELECT call FROM noted WHERE batch = ?1 ORDER BY call")?;
        let rows = statement.query_map([name], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Digest of the request of a queued or batched call.
    pub(super) fn batched_request(&self, call: &str) -> Result<Option<Digest>, RunError> {
        let request: Option<String> = self
            .lock()
            .query_row("SELECT request FROM noted WHERE call = ?1", [call], |row| {
                row.get(0)
            })
            .optional()?;
        let request = request.map(|request| serde_json::from_value(request.into()));
        Ok(request.transpose()?)
    }

    /// Records the ID of the uploaded file of a batch.
    pub fn batch_uploaded(&self, name: &str, file: &str) -> Result<(), RunError> {
        self.change_batch("UPDATE batch SET file = ?2 WHERE name = ?1", name, file)
    }

    /// Records that the endpoint is about to be asked to create the batch.
    pub fn batch_requested(&self, name: &str) -> Result<(), RunError> {
        self.change_batch("UPDATE batch SET asked = ?2 WHERE name = ?1", name, 1)
    }

    /// Records the ID of the created batch.
    pub fn batch_created(&self, name: &str, remote: &str) -> Result<(), RunError> {
        self.change_batch("UPDATE batch SET remote = ?2 WHERE name = ?1", name, remote)
    }

    fn change_batch(
        &self,
        statement: &str,
        name: &str,
        value: impl rusqlite::ToSql,
    ) -> Result<(), RunError> {
        match self.lock().execute(statement, params![name, value])? {
            1 => Ok(()),
            _ => Err(RunError::Internal(format!("no batch is named {name}"))),
        }
    }

    /// Closes a batch of which all calls have a result, and deletes its requests.
    pub fn close_batch(&self, name: &str) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        transaction.execute("UPDATE batch SET closed = 1 WHERE name = ?1", [name])?;
        transaction.execute("DELETE FROM noted WHERE batch = ?1", [name])?;
        transaction.commit()?;
        Ok(())
    }

    /// Deletes a batch that the endpoint rejected, together with its calls, which were never executed.
    pub fn discard_batch(&self, name: &str) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
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

fn has_batches(connection: &Connection) -> Result<bool, RunError> {
    let table = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'batch')";
    Ok(connection.query_row(table, [], |row| row.get(0))?)
}
