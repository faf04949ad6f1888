//! The journal in one SQLite file (WAL mode).
//!
//! One process writes at a time: it holds the lock of the run folder.

mod batches;
mod calls;
mod offers;
#[cfg(test)]
mod tests;
mod transfer;
mod units;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{
    Connection, OpenFlags, OptionalExtension, Params, Transaction, TransactionBehavior, params,
};

use super::backend::{MetadataStore, StepStore};
use super::leased::Attempt;
use super::out_of_order;
use super::paid_calls::PaidCalls;
use crate::RunError;

/// Time that a statement waits for a writer in another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Triggers maintain the totals in `spent`, so that a reservation does not have to sum over all calls.
const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS unit (
    stage TEXT NOT NULL, item TEXT NOT NULL, position INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending', attempts INTEGER NOT NULL DEFAULT 0,
    lease_until INTEGER NOT NULL DEFAULT 0, output TEXT, failure TEXT,
    PRIMARY KEY (stage, item)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS unit_by_position ON unit (stage, position);
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

/// A connection to the file.
#[derive(Debug)]
pub(super) struct SqliteJournal {
    connection: Mutex<Connection>,
    /// `None` if the journal is read-only, or if another process counts.
    paid: Option<PaidCalls>,
}

impl SqliteJournal {
    /// Opens or creates the journal. Calls that a dead process left in flight become uncertain.
    pub(super) fn open(path: &Path) -> Result<Self, RunError> {
        let connection = create(path)?;
        calls::repair_totals(&connection)?;
        connection.execute_batch(batches::DELETE_UNSENT)?;
        // This process holds the lock of the run folder, so the processes that hold leases or wait for calls
        // have ended.
        connection.execute_batch(
            "UPDATE call SET state = 'uncertain' WHERE state = 'in_flight';
             UPDATE unit SET lease_until = 0 WHERE lease_until <> 0;",
        )?;
        let settled = "SELECT COUNT(*) FROM call WHERE state = 'settled'";
        let settled = connection.query_row(settled, [], |row| row.get(0))?;
        let name = path.display().to_string();
        let paid = PaidCalls::open(&path.with_extension("calls"), &name, settled)?;
        Ok(Self {
            connection: Mutex::new(connection),
            paid: Some(paid),
        })
    }

    /// Opens or creates a file that a journal is copied to. Nothing is recovered, and paid calls are not counted.
    pub(super) fn create(path: &Path) -> Result<Self, RunError> {
        Ok(Self {
            connection: Mutex::new(create(path)?),
            paid: None,
        })
    }

    /// Opens the journal that another handle has opened, for a further worker.
    pub(super) fn join(path: &Path) -> Result<Self, RunError> {
        Ok(Self {
            connection: Mutex::new(connect(path)?),
            paid: None,
        })
    }

    /// Whether a file is no journal yet: it is missing, empty, or has no tables.
    pub(super) fn is_blank(path: &Path) -> Result<bool, RunError> {
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

    /// Opens an existing journal for reading, while another process may be writing.
    pub(super) fn open_read_only(path: &Path) -> Result<Self, RunError> {
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

    pub(super) fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic while holding the lock leaves no partial statement, because SQLite rolls it back.
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Executes a statement, which is prepared once.
    fn execute(&self, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
        self.lock().prepare_cached(sql)?.execute(params)
    }
}

impl StepStore for SqliteJournal {
    fn append(
        &self,
        trajectory: &str,
        position: u64,
        payload: &str,
        attempt: Option<Attempt<'_>>,
    ) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = writing(&mut connection)?;
        units::check_attempt(&transaction, attempt)?;
        let added = transaction
            .prepare_cached(
                "INSERT INTO event (trajectory, position, payload) SELECT ?1, ?2, ?3 WHERE ?2 =
                 (SELECT COALESCE(MAX(position) + 1, 0) FROM event WHERE trajectory = ?1)",
            )?
            .execute(params![trajectory, position, payload])?;
        if added != 1 {
            return Err(out_of_order(trajectory, position));
        }
        transaction.commit()?;
        Ok(())
    }

    fn events(&self, trajectory: &str) -> Result<Vec<(u64, String)>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached(
            "SELECT position, payload FROM event WHERE trajectory = ?1 ORDER BY position",
        )?;
        let rows = statement.query_map([trajectory], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn count_events(&self, trajectory: &str) -> Result<u64, RunError> {
        let connection = self.lock();
        let mut statement =
            connection.prepare_cached("SELECT COUNT(*) FROM event WHERE trajectory = ?1")?;
        Ok(statement.query_row([trajectory], |row| row.get(0))?)
    }

    fn clear_events(&self, trajectory: &str, attempt: Option<Attempt<'_>>) -> Result<(), RunError> {
        let mut connection = self.lock();
        let transaction = writing(&mut connection)?;
        units::check_attempt(&transaction, attempt)?;
        transaction.execute("DELETE FROM event WHERE trajectory = ?1", [trajectory])?;
        transaction.commit()?;
        Ok(())
    }
}

impl MetadataStore for SqliteJournal {
    fn set_metadata(&self, key: &str, value: &str, synced: bool) -> Result<(), RunError> {
        let connection = self.lock();
        let set = |connection: &Connection| {
            connection.execute(
                "INSERT INTO fact (key, value) VALUES (?1, ?2)
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
                [key, value],
            )
        };
        match synced {
            true => self::synced(&connection, set)?,
            false => set(&connection)?,
        };
        Ok(())
    }

    fn metadata(&self, key: &str) -> Result<Option<String>, RunError> {
        let value = "SELECT value FROM fact WHERE key = ?1";
        let value = self.lock().query_row(value, [key], |row| row.get(0));
        Ok(value.optional()?)
    }

    fn metadata_with_prefix(&self, prefix: &str) -> Result<Vec<(String, String)>, RunError> {
        let connection = self.lock();
        let mut statement = connection.prepare(
            "SELECT substr(key, length(?1) + 1), value FROM fact
             WHERE substr(key, 1, length(?1)) = ?1 ORDER BY key",
        )?;
        let rows = statement.query_map([prefix], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn work_by_hand(&self) -> Result<u64, RunError> {
        let counted = "SELECT (SELECT COUNT(*) FROM fact WHERE key LIKE 'review/%' OR key LIKE 'trajectory-review/%'
              OR key LIKE 'human-edit/%') +
             (SELECT COUNT(*) FROM unit WHERE stage = 'rollout' AND state = 'done'
              AND json_extract(output, '$.teacher') = 'human')";
        Ok(self.lock().query_row(counted, [], |row| row.get(0))?)
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

/// Opens a file and creates the tables that it does not have.
fn create(path: &Path) -> rusqlite::Result<Connection> {
    let connection = connect(path)?;
    for schema in [SCHEMA, batches::SCHEMA, offers::SCHEMA] {
        connection.execute_batch(schema)?;
    }
    Ok(connection)
}

/// Begins a transaction that writes, so that what it reads cannot change before it writes.
fn writing(connection: &mut Connection) -> rusqlite::Result<Transaction<'_>> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate)
}

/// Runs a statement that is on the disk when this returns. Others are after the next one that is, which a killed process
/// does not notice, but a machine without power does.
pub(super) fn synced<T>(
    connection: &Connection,
    statement: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    connection.pragma_update(None, "synchronous", "FULL")?;
    let done = statement(connection);
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    done
}

/// Checks that the database can be read.
pub(super) fn check_readable(connection: &Connection) -> rusqlite::Result<()> {
    connection.query_row("SELECT COUNT(*) FROM sqlite_schema", [], |_| Ok(()))
}

pub(super) fn immutable_uri(path: &Path) -> String {
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
