//! The trajectories of a source in SQLite, so that a page of a million rows is read as fast as one of ten.
//!
//! The file is in the cache; it is made again when the source has changed. It holds what the list shows in columns,
//! each record as JSON, and an index of the words of users, models and interpreter. The turns of long trajectories are rows
//! of their own, so that a page of them is read without the others.
//!
//! A thread makes it, in a file of its own that is renamed when it is complete. What it has written can be read meanwhile.

mod build;
mod facets;
mod growth;
mod outcomes;
mod page;
mod prepare;
mod query;
mod schema;
#[cfg(test)]
mod tests;
mod trajectory;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use pybench_run::RunError;
use pybench_show::TrajectorySource;
use rusqlite::{Connection, OpenFlags};

pub(crate) use self::facets::Facet;
use self::growth::Growth;
pub(crate) use self::growth::IndexProgress;
pub(crate) use self::outcomes::TaskOutcome;
pub(crate) use self::page::{ListState, Page};
pub(crate) use self::query::ListQuery;
use self::schema::VERSION;

/// How the name of an index that is not complete ends.
pub(crate) const UNFINISHED: &str = ".part";
/// How long a request waits for a transaction of the thread that makes the index.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of indexes that this process has opened.
static OPENED: AtomicU64 = AtomicU64::new(0);

/// The trajectories of one source.
pub(crate) struct Index {
    path: PathBuf,
    /// Which of the indexes of this process it is. A source that has changed has another one.
    id: u64,
    /// Where it is until it is complete.
    unfinished: PathBuf,
    connection: Mutex<Connection>,
    growth: Arc<Growth>,
}

impl Drop for Index {
    /// The thread that makes it ends at its next step.
    fn drop(&mut self) {
        if self.growth.abandon() {
            let _ = std::fs::remove_file(&self.unfinished);
        }
    }
}

/// Ends an index whose thread panics.
struct EndGuard<'a>(&'a Growth);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        let text = "the thread that makes the index failed";
        self.0.end(Err(RunError::Internal(text.to_owned())));
    }
}

impl Index {
    /// Opens the index at `path`. If it is missing, damaged or of another version, a thread begins to make it from `source`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn begin(path: &Path, source: &TrajectorySource) -> Result<Self, RunError> {
        let failed = |error: rusqlite::Error| failed(path, &error);
        // Another studio may make the same index.
        let unfinished = path.with_extension(format!("{:016x}{UNFINISHED}", rand::random::<u64>()));
        if let Some(connection) = existing(path) {
            return Ok(Self::new(path, unfinished, connection, Growth::complete()));
        }
        let created =
            build::create(&unfinished).and_then(|writer| Ok((writer, open(&unfinished)?)));
        if created.is_err() {
            let _ = std::fs::remove_file(&unfinished);
        }
        let (writer, reader) = created.map_err(failed)?;
        let index = Self::new(path, unfinished, reader, Growth::new());
        let (path, unfinished) = (index.path.clone(), index.unfinished.clone());
        let (source, growth) = (source.clone(), index.growth.clone());
        let work = move || {
            let _guard = EndGuard(&growth);
            let made = build::write(writer, &source, &growth, &unfinished, &path);
            if made.is_err() {
                // Those that read it have it open.
                let _ = std::fs::remove_file(&unfinished);
            }
            growth.end(made);
        };
        let thread = thread::Builder::new().name("studio-index".to_owned());
        thread
            .spawn(work)
            .map_err(RunError::io("starting a thread"))?;
        Ok(index)
    }

    /// As [`Index::begin`], complete.
    #[cfg(test)]
    pub(crate) fn open(path: &Path, source: &TrajectorySource) -> Result<Self, RunError> {
        let index = Self::begin(path, source)?;
        index.wait()?;
        Ok(index)
    }

    fn new(path: &Path, unfinished: PathBuf, connection: Connection, growth: Growth) -> Self {
        Self {
            path: path.to_owned(),
            id: OPENED.fetch_add(1, Ordering::Relaxed),
            unfinished,
            connection: Mutex::new(connection),
            growth: Arc::new(growth),
        }
    }

    /// Tells the indexes of this process apart. A trajectory that has a number in one of them stays as it is there.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// How far the index is; `None` once it is complete.
    pub(crate) fn progress(&self) -> Option<IndexProgress> {
        self.growth.progress()
    }

    /// How long ago the index was made, as far as that was possible, and how long it took; `None` while it is being made.
    pub(crate) fn age(&self) -> Option<(Duration, Duration)> {
        self.growth.age()
    }

    /// Waits a moment for the index to be complete, and some seconds for a page of rows.
    ///
    /// # Errors
    /// The source cannot be read; the file cannot be written.
    pub(crate) fn wait_for_rows(&self) -> Result<(), RunError> {
        self.growth.wait_for_rows()
    }

    /// Waits until the index is complete.
    ///
    /// # Errors
    /// The source cannot be read; the file cannot be written.
    pub(crate) fn wait(&self) -> Result<(), RunError> {
        self.growth.wait()
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
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    Ok(connection)
}

/// The index at `path`, if it is there, whole and of this version.
fn existing(path: &Path) -> Option<Connection> {
    let connection = open(path).ok()?;
    let version = connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0));
    let facets = "SELECT count(*) FROM facet";
    let whole = connection.query_row(facets, [], |row| row.get::<_, i64>(0));
    (version == Ok(VERSION) && whole == Ok(1)).then_some(connection)
}
