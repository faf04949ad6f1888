//! Calls that go out together, as batches that an endpoint answers within a day.
//!
//! A call is *noted*: reserved, with the request as it will be sent. Notes are put together into a batch,
//! which is uploaded, asked for, waited for and closed; each step is here before the next one starts. What
//! was noted and never put into a batch is forgotten when the journal is opened again: nobody was asked.

use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use serde::Serialize;

use super::Journal;
use super::calls::{BudgetCap, Reservation, ReserveError, reserve_as};
use crate::id::Digest;
use crate::run::RunError;

pub(super) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS batch (
    name TEXT PRIMARY KEY, teacher TEXT NOT NULL, wave INTEGER NOT NULL, requests INTEGER NOT NULL,
    file TEXT, asked INTEGER NOT NULL DEFAULT 0, remote TEXT, closed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS noted (
    call TEXT PRIMARY KEY, teacher TEXT NOT NULL, batch TEXT, request TEXT NOT NULL, line TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS noted_by_batch ON noted (batch);
";

/// What was noted and never sent.
pub(super) const FORGET: &str = "
DELETE FROM call WHERE state = 'batched' AND id IN (SELECT call FROM noted WHERE batch IS NULL);
DELETE FROM noted WHERE batch IS NULL;
";

/// A request that waits to go out with others.
#[derive(Clone, Copy, Debug)]
pub struct Note<'a> {
    /// Who is asked.
    pub teacher: &'a str,
    /// What is asked, for comparison.
    pub request: &'a Digest,
    /// The line of the batch's file, without its end.
    pub line: &'a str,
}

/// Calls that go out together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Batch {
    /// Our own name of it.
    pub name: String,
    /// Who is asked.
    pub teacher: String,
    /// The how-manieth wave of that teacher, from 1.
    pub wave: u64,
    /// Requests.
    pub requests: u64,
    /// The endpoint's id of the uploaded file.
    pub file: Option<String>,
    /// Whether the endpoint was asked to make the batch; the answer may be lost.
    pub asked: bool,
    /// The endpoint's id of the batch.
    pub remote: Option<String>,
}

/// A call of a batch whose end is not known yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The call.
    pub call: String,
    /// What was asked.
    pub request: Digest,
    /// What is reserved for it.
    pub reserved: Reservation,
}

const COLUMNS: &str = "name, teacher, wave, requests, file, asked, remote";

fn batch(row: &Row<'_>) -> rusqlite::Result<Batch> {
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
    /// Reserve a call's highest cost and note what is asked, in one step.
    pub fn note(
        &self,
        id: &str,
        most: Reservation,
        cap: BudgetCap,
        note: Note<'_>,
    ) -> Result<(), ReserveError> {
        let mut connection = self.lock();
        let transaction = connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(RunError::from)?;
        reserve_as(&transaction, "batched", id, most, cap)?;
        let noted = transaction.execute(
            "INSERT INTO noted (call, teacher, request, line) VALUES (?1, ?2, ?3, ?4)",
            params![id, note.teacher, note.request.as_str(), note.line],
        );
        noted.map_err(RunError::from)?;
        transaction.commit().map_err(RunError::from)?;
        Ok(())
    }

    /// Calls that were noted for a teacher and are in no batch yet, with the bytes of their lines; by id.
    pub fn noted(&self, teacher: &str) -> Result<Vec<(String, u64)>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT call, length(CAST(line AS BLOB)) FROM noted
             WHERE teacher = ?1 AND batch IS NULL ORDER BY call",
        )?;
        let rows = statement.query_map([teacher], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// Whether calls hold reservations until a batch ends.
    pub fn awaits_batches(&self) -> Result<bool, RunError> {
        let any = "SELECT EXISTS (SELECT 1 FROM noted)";
        Ok(self.lock().query_row(any, [], |row| row.get(0))?)
    }

    /// Put noted calls into batches, all of them in one step: the next wave of that teacher.
    pub fn form_batches(&self, teacher: &str, batches: &[Vec<String>]) -> Result<(), RunError> {
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

    /// Batches of a teacher that are not closed, in order.
    pub fn open_batches(&self, teacher: &str) -> Result<Vec<Batch>, RunError> {
        let mut all = self.batches_out()?;
        all.retain(|batch| batch.teacher == teacher);
        Ok(all)
    }

    /// Batches of all teachers that are not closed, in order; none in the journal of an older version.
    pub fn batches_out(&self) -> Result<Vec<Batch>, RunError> {
        let connection = self.lock();
        if !has_batches(&connection)? {
            return Ok(Vec::new());
        }
        let mut statement = connection.prepare(&format!(
            "SELECT {COLUMNS} FROM batch WHERE closed = 0 ORDER BY teacher, wave, rowid"
        ))?;
        let rows = statement.query_map([], batch)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// The lines of a batch's file, each with its end; ordered by call.
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

    /// The calls of a batch whose end is not known, in the order of its file.
    pub fn awaited(&self, name: &str) -> Result<Vec<Awaited>, RunError> {
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
            Ok(Awaited {
                call,
                request: serde_json::from_value(request.into())?,
                reserved,
            })
        })
        .collect()
    }

    /// Every call of a batch that is not closed, in the order of its file.
    pub fn batch_calls(&self, name: &str) -> Result<Vec<String>, RunError> {
        let connection = self.lock();
        let mut statement =
            connection.prepare("SELECT call FROM noted WHERE batch = ?1 ORDER BY call")?;
        let rows = statement.query_map([name], |row| row.get(0))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    /// What was asked with a call that is in a batch or waits for one.
    pub(super) fn noted_request(&self, call: &str) -> Result<Option<Digest>, RunError> {
        let request: Option<String> = self
            .lock()
            .query_row("SELECT request FROM noted WHERE call = ?1", [call], |row| {
                row.get(0)
            })
            .optional()?;
        let request = request.map(|request| serde_json::from_value(request.into()));
        Ok(request.transpose()?)
    }

    /// The file of a batch was taken by the endpoint, under that id.
    pub fn batch_uploaded(&self, name: &str, file: &str) -> Result<(), RunError> {
        self.change_batch("UPDATE batch SET file = ?2 WHERE name = ?1", name, file)
    }

    /// The endpoint is about to be asked for the batch.
    pub fn batch_asked(&self, name: &str) -> Result<(), RunError> {
        let asked = "UPDATE batch SET asked = ?2 WHERE name = ?1";
        self.change_batch(asked, name, 1)
    }

    /// The endpoint made the batch, under that id.
    pub fn batch_made(&self, name: &str, remote: &str) -> Result<(), RunError> {
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
            _ => Err(RunError::Internal(format!("no batch is called {name}"))),
        }
    }

    /// The end of every call of the batch is known: forget what was asked.
    pub fn close_batch(&self, name: &str) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        transaction.execute("UPDATE batch SET closed = 1 WHERE name = ?1", [name])?;
        transaction.execute("DELETE FROM noted WHERE batch = ?1", [name])?;
        transaction.commit()?;
        Ok(())
    }

    /// The endpoint does not take the batch, and nothing was done: its calls were never made.
    pub fn dissolve_batch(&self, name: &str) -> Result<(), RunError> {
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
