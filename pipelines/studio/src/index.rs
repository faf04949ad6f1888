//! The trajectories of a source in SQLite, so that a page of a million rows is read as fast as one of ten.
//!
//! The file is in the cache; it is made again when the source has changed. It holds what the list shows in columns,
//! each record as JSON, and an index of the words of users, models and interpreter. The turns of long trajectories are rows
//! of their own, so that a page of them is read without the others.

mod build;
mod outcomes;
mod page;
mod query;
mod schema;
#[cfg(test)]
mod tests;
mod trajectory;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pybench_run::RunError;
use pybench_show::TrajectorySource;
use rusqlite::{Connection, OpenFlags};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use self::outcomes::TaskOutcome;
pub(crate) use self::page::Page;
pub(crate) use self::query::ListQuery;
use self::schema::VERSION;

/// How often each value of a column occurs, the most frequent first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Facet {
    pub(crate) column: String,
    pub(crate) values: Vec<(String, u64)>,
}

/// The trajectories of one source.
pub(crate) struct Index {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl Index {
    /// Opens the index at `path`, which is made from `source` if it is missing, damaged or of another version.
    ///
    /// # Errors
    /// The source cannot be read; the file cannot be written.
    pub(crate) fn open(path: &Path, source: &TrajectorySource) -> Result<Self, RunError> {
        if let Some(connection) = existing(path) {
            return Ok(Self::new(path, connection));
        }
        let unfinished = path.with_extension(format!("{}.part", std::process::id()));
        let made = build::write(&unfinished, source).and_then(|()| {
            let io = RunError::io(path.display().to_string());
            std::fs::rename(&unfinished, path).map_err(io)
        });
        if made.is_err() {
            let _ = std::fs::remove_file(&unfinished);
        }
        made?;
        let connection = open(path).map_err(|error| failed(path, &error))?;
        Ok(Self::new(path, connection))
    }

    fn new(path: &Path, connection: Connection) -> Self {
        Self {
            path: path.to_owned(),
            connection: Mutex::new(connection),
        }
    }

    /// Reads from the index.
    fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, RunError> {
        let connection: MutexGuard<'_, Connection> = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        read(&connection).map_err(|error| failed(&self.path, &error))
    }

    /// The values that filters offer.
    ///
    /// # Errors
    /// The index cannot be read.
    pub(crate) fn facets(&self) -> Result<Vec<Facet>, RunError> {
        let text: String = self.read(|connection| {
            connection.query_row("SELECT json FROM facet", [], |row| row.get(0))
        })?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// The error of an index. The file can be deleted: everything in it is made again.
fn failed(path: &Path, error: &rusqlite::Error) -> RunError {
    RunError::Environment(format!(
        "cannot use the studio's index {}: {error}; check that its disk is writable and has space, or delete the file and \
         start the studio again",
        path.display()
    ))
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(path, flags)
}

/// The index at `path`, if it is there, whole and of this version.
fn existing(path: &Path) -> Option<Connection> {
    let connection = open(path).ok()?;
    let version = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    let facets = "SELECT count(*) FROM facet";
    let whole = connection.query_row(facets, [], |row| row.get::<_, i64>(0));
    (version == Ok(VERSION) && whole == Ok(1)).then_some(connection)
}
