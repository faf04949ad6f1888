//! The history in SQLite (WAL, `synchronous = FULL`).

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pybench_run::{BudgetCap, Reservation, RunError, waiting};
use rusqlite::{Connection, ErrorCode, OptionalExtension, TransactionBehavior, params};

use super::backend::{Backend, allows, bounded};
use super::{Listed, Spending, make_private};

/// Version of the tables.
const VERSION: i64 = 1;
/// Time that a statement waits for another process.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

const TABLES: &str = "
CREATE TABLE IF NOT EXISTS conversation (
    id TEXT PRIMARY KEY, changed INTEGER NOT NULL, title TEXT NOT NULL DEFAULT '', settings TEXT NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS entry (
    conversation TEXT NOT NULL, position INTEGER NOT NULL, json TEXT NOT NULL,
    PRIMARY KEY (conversation, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS call (
    number INTEGER PRIMARY KEY, conversation TEXT NOT NULL, micro_usd INTEGER NOT NULL, tokens INTEGER NOT NULL,
    settled INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS call_of_conversation ON call (conversation);
";

/// A file with conversations.
pub(super) struct SqliteHistory {
    root: PathBuf,
    connection: Mutex<Connection>,
}

impl SqliteHistory {
    /// Opens or creates the file in a folder.
    pub(super) fn open(root: &Path) -> Result<Self, RunError> {
        make_private(root)?;
        let path = root.join("history.sqlite");
        let mut private = OpenOptions::new();
        let private = private.create(true).append(true).mode(0o600);
        let created = private.open(&path);
        created.map_err(RunError::io(root.display().to_string()))?;
        let failed = |error: rusqlite::Error| failed(root, &error);
        let connection = Connection::open(&path).map_err(failed)?;
        connection.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
        let version = prepare(&connection).map_err(failed)?;
        if version > VERSION {
            return Err(RunError::Environment(format!(
                "{} was written by a newer version of pybench; install that version, or name another folder with --history",
                path.display()
            )));
        }
        Ok(Self {
            root: root.to_owned(),
            connection: Mutex::new(connection),
        })
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, RunError> {
        waiting(|| work(&self.lock())).map_err(|error| failed(&self.root, &error))
    }

    fn transaction<T>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, RunError> {
        let done = waiting(|| -> rusqlite::Result<T> {
            let mut connection = self.lock();
            let behavior = TransactionBehavior::Immediate;
            let transaction = connection.transaction_with_behavior(behavior)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        });
        done.map_err(|error| failed(&self.root, &error))
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Backend for SqliteHistory {
    fn begin(&self, id: &str, settings: &str, now: u64) -> Result<(), RunError> {
        let insert =
            "INSERT OR IGNORE INTO conversation (id, changed, settings) VALUES (?1, ?2, ?3)";
        self.with(|connection| connection.execute(insert, params![id, now, settings]))?;
        Ok(())
    }

    fn list(&self, most: usize) -> Result<Vec<Listed>, RunError> {
        self.with(|connection| {
            let mut statement = connection.prepare(&format!(
                "SELECT id, title, changed / 1000 FROM conversation
                 ORDER BY changed DESC, rowid DESC LIMIT {most}"
            ))?;
            let rows = statement.query_map([], |row| {
                Ok(Listed {
                    id: row.get(0)?,
                    title: row.get(1)?,
                    changed: row.get(2)?,
                })
            })?;
            rows.collect()
        })
    }

    fn starting_with(&self, digits: &str) -> Result<Vec<String>, RunError> {
        self.with(|connection| {
            let select = "SELECT id FROM conversation WHERE substr(id, 1, length(?1)) = ?1 LIMIT 2";
            let mut statement = connection.prepare(select)?;
            let rows = statement.query_map([digits], |row| row.get(0))?;
            rows.collect()
        })
    }

    fn read(&self, id: &str) -> Result<Option<(String, Vec<String>)>, RunError> {
        self.with(|connection| {
            let settings = "SELECT settings FROM conversation WHERE id = ?1";
            let settings: Option<String> = connection
                .query_row(settings, [id], |row| row.get(0))
                .optional()?;
            let select = "SELECT json FROM entry WHERE conversation = ?1 ORDER BY position";
            let mut statement = connection.prepare(select)?;
            let rows = statement.query_map([id], |row| row.get::<_, String>(0))?;
            let entries = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            Ok(settings.map(|settings| (settings, entries)))
        })
    }

    fn append(
        &self,
        id: &str,
        position: u64,
        json: &str,
        title: &str,
        now: u64,
    ) -> Result<bool, RunError> {
        self.transaction(|connection| {
            let insert = "INSERT INTO entry VALUES (?1, ?2, ?3)";
            if let Err(error) = connection.execute(insert, params![id, position, json]) {
                return match error.sqlite_error_code() {
                    Some(ErrorCode::ConstraintViolation) => Ok(false),
                    _ => Err(error),
                };
            }
            let update = "UPDATE conversation SET changed = ?2,
                 title = CASE WHEN title = '' THEN ?3 ELSE title END WHERE id = ?1";
            connection.execute(update, params![id, now, title])?;
            Ok(true)
        })
    }

    fn reserve(
        &self,
        id: &str,
        most: Reservation,
        cap: BudgetCap,
    ) -> Result<Result<i64, Spending>, RunError> {
        self.transaction(|connection| {
            let spent = spending(connection, id)?;
            if !allows(cap, spent, most) {
                return Ok(Err(spent));
            }
            connection.execute(
                "INSERT INTO call (conversation, micro_usd, tokens) VALUES (?1, ?2, ?3)",
                params![id, bounded(most.micro_usd), bounded(most.tokens)],
            )?;
            Ok(Ok(connection.last_insert_rowid()))
        })
    }

    fn settle(&self, call: i64, cost: Reservation) -> Result<(), RunError> {
        let update = "UPDATE call SET micro_usd = ?2, tokens = ?3, settled = 1 WHERE number = ?1";
        let (micro_usd, tokens) = (bounded(cost.micro_usd), bounded(cost.tokens));
        self.with(|connection| connection.execute(update, params![call, micro_usd, tokens]))?;
        Ok(())
    }

    fn release(&self, call: i64) -> Result<(), RunError> {
        let delete = "DELETE FROM call WHERE number = ?1";
        self.with(|connection| connection.execute(delete, [call]))?;
        Ok(())
    }

    fn spending(&self, id: &str) -> Result<Spending, RunError> {
        self.with(|connection| spending(connection, id))
    }
}

/// Makes the tables, and returns their version.
fn prepare(connection: &Connection) -> rusqlite::Result<i64> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    if version > VERSION {
        return Ok(version);
    }
    connection.execute_batch(TABLES)?;
    connection.pragma_update(None, "user_version", VERSION)?;
    Ok(VERSION)
}

fn spending(connection: &Connection, id: &str) -> rusqlite::Result<Spending> {
    let sums = "SELECT count(*), coalesce(sum(settled = 0), 0), coalesce(sum(micro_usd), 0), coalesce(sum(tokens), 0)
                FROM call WHERE conversation = ?1";
    connection.query_row(sums, [id], |row| {
        Ok(Spending {
            calls: row.get(0)?,
            uncertain: row.get(1)?,
            micro_usd: row.get(2)?,
            tokens: row.get(3)?,
        })
    })
}

fn failed(root: &Path, error: &rusqlite::Error) -> RunError {
    RunError::Environment(format!(
        "cannot use the history of conversations in {}: {error}; check that its disk is writable and has space, or name \
         another folder with --history",
        root.display()
    ))
}
