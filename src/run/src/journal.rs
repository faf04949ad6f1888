//! The journal: one SQLite file (WAL mode) that records every unit, call and turn of a run.
//!
//! Each step is recorded before the next one starts. A `kill -9` therefore loses only work in flight, and a
//! paid call in flight is charged as uncertain.

mod batches;
mod calls;
mod paid;
#[cfg(test)]
mod tests;
mod units;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Params, params};
use serde_json::Value;

pub use self::batches::{Batch, BatchRequest, PendingCall};
pub use self::calls::{BudgetCap, Call, CallState, Reservation, ReserveError, Spent};
use self::paid::PaidCalls;
pub use self::units::{RetryFailed, UnitFailure};
use super::{RunError, artifact_names};

/// Time that a statement waits for a writer in another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Triggers maintain the totals in `spent`, so that a reservation does not have to sum over all calls.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS unit (
    stage TEXT NOT NULL, item TEXT NOT NULL, position INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending', attempts INTEGER NOT NULL DEFAULT 0,
    lease_until INTEGER NOT NULL DEFAULT 0, output TEXT, failure TEXT,
    PRIMARY KEY (stage, item)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS call (
    id TEXT PRIMARY KEY, state TEXT NOT NULL,
    micro_usd INTEGER NOT NULL, tokens INTEGER NOT NULL, reply TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spent (
    calls INTEGER NOT NULL, uncertain INTEGER NOT NULL,
    micro_usd INTEGER NOT NULL, tokens INTEGER NOT NULL);
INSERT INTO spent SELECT 0, 0, 0, 0 WHERE NOT EXISTS (SELECT 1 FROM spent);
CREATE TRIGGER IF NOT EXISTS call_added AFTER INSERT ON call BEGIN
    UPDATE spent SET calls = calls + 1, uncertain = uncertain + (new.state = 'uncertain'),
        micro_usd = micro_usd + new.micro_usd, tokens = tokens + new.tokens; END;
CREATE TRIGGER IF NOT EXISTS call_changed AFTER UPDATE ON call BEGIN
    UPDATE spent SET uncertain = uncertain + (new.state = 'uncertain') - (old.state = 'uncertain'),
        micro_usd = micro_usd + new.micro_usd - old.micro_usd,
        tokens = tokens + new.tokens - old.tokens; END;
CREATE TRIGGER IF NOT EXISTS call_removed AFTER DELETE ON call BEGIN
    UPDATE spent SET calls = calls - 1, uncertain = uncertain - (old.state = 'uncertain'),
        micro_usd = micro_usd - old.micro_usd, tokens = tokens - old.tokens; END;
CREATE TABLE IF NOT EXISTS event (
    trajectory TEXT NOT NULL, position INTEGER NOT NULL, payload TEXT NOT NULL,
    PRIMARY KEY (trajectory, position)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fact (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
";

/// The journal of one run.
#[derive(Debug)]
pub struct Journal {
    connection: Mutex<Connection>,
    /// `None` if the journal is read-only.
    paid: Option<PaidCalls>,
}

/// One recorded step of a trajectory.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Position in the trajectory, from 0, without gaps.
    pub position: u64,
    pub payload: Value,
}

impl Journal {
    /// Opens or creates the journal. Calls that a dead process left in flight become uncertain.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.execute_batch(SCHEMA)?;
        connection.execute_batch(batches::SCHEMA)?;
        calls::repair_totals(&connection)?;
        connection.execute_batch(batches::DELETE_UNSENT)?;
        // This process holds the lock of the run folder, so the processes that hold leases or wait for calls
        // have ended.
        connection.execute_batch(
            "UPDATE call SET state = 'uncertain' WHERE state = 'in_flight';
             UPDATE unit SET lease_until = 0 WHERE lease_until <> 0;",
        )?;
        let paid = PaidCalls::open(path, &connection)?;
        Ok(Self {
            connection: Mutex::new(connection),
            paid: Some(paid),
        })
    }

    /// Whether a file is no journal yet: it is missing, empty, or has no tables.
    pub(crate) fn is_blank(path: &Path) -> Result<bool, RunError> {
        if !path.exists() {
            return Ok(true);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        let tables = "SELECT COUNT(*) FROM sqlite_schema";
        let tables: u64 = connection.query_row(tables, [], |row| row.get(0))?;
        Ok(tables == 0)
    }

    /// Opens the journal of a run folder for reading; `None` if there is no such run.
    ///
    /// # Errors
    /// As [`Journal::open_read_only`].
    pub fn of_run(folder: &Path) -> Result<Option<Self>, RunError> {
        let path = folder.join(artifact_names::JOURNAL);
        path.is_file()
            .then(|| Self::open_read_only(&path))
            .transpose()
    }

    /// Opens an existing journal for reading, while another process may be writing.
    pub fn open_read_only(path: &Path) -> Result<Self, RunError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        if check_readable(&connection).is_err() {
            // In a read-only folder SQLite cannot create its shared memory. Nobody can write there either, so
            // the file can be opened as immutable.
            let uri = immutable_uri(path);
            connection = Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI)?;
            check_readable(&connection)?;
        }
        Ok(Self {
            connection: Mutex::new(connection),
            paid: None,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic while holding the lock leaves no partial statement, because SQLite rolls it back.
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a statement, which is prepared once.
    fn execute(&self, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
        self.lock().prepare_cached(sql)?.execute(params)
    }

    // --- events of trajectories ---------------------------------------------------------------

    /// Appends a step of a trajectory; `position` must be the next one.
    pub fn append(&self, trajectory: &str, position: u64, payload: &Value) -> Result<(), RunError> {
        let added = self.execute(
            "INSERT INTO event (trajectory, position, payload) SELECT ?1, ?2, ?3 WHERE ?2 =
             (SELECT COALESCE(MAX(position) + 1, 0) FROM event WHERE trajectory = ?1)",
            params![trajectory, position, payload.to_string()],
        )?;
        if added == 1 {
            return Ok(());
        }
        Err(RunError::Internal(format!(
            "step {position} of trajectory {trajectory} is out of order"
        )))
    }

    /// Reads the steps of a trajectory, in order.
    pub fn events(&self, trajectory: &str) -> Result<Vec<Event>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached(
            "SELECT position, payload FROM event WHERE trajectory = ?1 ORDER BY position",
        )?;
        let rows = statement.query_map([trajectory], |row| {
            Ok((row.get::<_, u64>(0)?, row.get::<_, String>(1)?))
        })?;
        rows.map(|row| {
            let (position, payload) = row?;
            Ok(Event {
                position,
                payload: serde_json::from_str(&payload)?,
            })
        })
        .collect()
    }

    /// Deletes the steps of a trajectory, which then starts over.
    pub fn clear_events(&self, trajectory: &str) -> Result<(), RunError> {
        self.lock()
            .execute("DELETE FROM event WHERE trajectory = ?1", [trajectory])?;
        Ok(())
    }

    // --- metadata ----------------------------------------------------------------------------

    /// Stores metadata of the run, such as the seconds spent per stage.
    pub fn set_metadata(&self, key: &str, value: &Value) -> Result<(), RunError> {
        set_metadata(&self.lock(), key, value)?;
        Ok(())
    }

    /// As [`Journal::set_metadata`], on the disk before it returns.
    pub(crate) fn set_metadata_synced(&self, key: &str, value: &Value) -> Result<(), RunError> {
        synced(&self.lock(), |connection| {
            set_metadata(connection, key, value)
        })?;
        Ok(())
    }

    /// Number of answers and decisions that people gave: reviews of tasks, and finished attempts of a person.
    pub(crate) fn work_by_hand(&self) -> Result<u64, RunError> {
        let counted = "SELECT (SELECT COUNT(*) FROM fact WHERE key LIKE 'review/%') +
             (SELECT COUNT(*) FROM unit WHERE stage = 'rollout' AND state = 'done'
              AND json_extract(output, '$.teacher') = 'human')";
        Ok(self.lock().query_row(counted, [], |row| row.get(0))?)
    }

    /// Reads the metadata stored under `key`.
    pub fn metadata(&self, key: &str) -> Result<Option<Value>, RunError> {
        let text: Option<String> = self
            .lock()
            .query_row("SELECT value FROM fact WHERE key = ?1", [key], |row| {
                row.get(0)
            })
            .optional()?;
        Ok(text.as_deref().map(serde_json::from_str).transpose()?)
    }

    /// Reads all metadata whose key starts with `prefix`, sorted by key; the prefix is removed.
    pub fn metadata_with_prefix(&self, prefix: &str) -> Result<Vec<(String, Value)>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT substr(key, length(?1) + 1), value FROM fact
             WHERE substr(key, 1, length(?1)) = ?1 ORDER BY key",
        )?;
        let rows = statement.query_map([prefix], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
        })?;
        rows.map(|row| {
            let (key, value) = row?;
            Ok((key, serde_json::from_str(&value)?))
        })
        .collect()
    }
}

/// Runs a statement that is on the disk when this returns. Others are after the next one that is, which a killed process
/// does not notice, but a machine without power does.
fn synced<T>(
    connection: &Connection,
    statement: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    let done = statement(connection);
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    done
}

fn set_metadata(connection: &Connection, key: &str, value: &Value) -> rusqlite::Result<usize> {
    connection.execute(
        "INSERT INTO fact (key, value) VALUES (?1, ?2)
         ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        params![key, value.to_string()],
    )
}

/// Checks that the database can be read.
fn check_readable(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |_| Ok(()))
}

fn immutable_uri(path: &Path) -> String {
    let encoded: String = path
        .as_os_str()
        .as_encoded_bytes()
        .iter()
        .map(|byte| match byte {
            b'/' | b'-' | b'_' | b'.' => char::from(*byte).to_string(),
            letter if letter.is_ascii_alphanumeric() => char::from(*letter).to_string(),
            other => format!("%{other:02x}"),
        })
        .collect();
    format!("file:{encoded}?immutable=1")
}
