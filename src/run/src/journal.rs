//! The journal: records every unit, call and turn of a run, in a SQLite file or in PostgreSQL.
//!
//! Each step is recorded before the next one starts. A `kill -9` therefore loses only work in flight, and a
//! paid call in flight is charged as uncertain.

mod backend;
mod batches;
mod calls;
mod leased;
mod moving;
mod offers;
mod paid_calls;
mod place;
mod postgres;
mod profile;
mod shared_run;
mod sqlite;
mod temporal_server;
mod transfer;
mod units;

use std::path::Path;

use serde_json::Value;

use self::backend::Backend;
pub use self::batches::{Batch, BatchRequest, PendingCall};
pub use self::calls::{BudgetCap, Call, CallState, Reservation, ReserveError, Spent};
use self::leased::{Attempt, LeasedUnits};
pub(crate) use self::offers::lease_end;
pub use self::offers::{LeasedOffer, OfferCounts};
pub(crate) use self::place::JournalPlace;
use self::postgres::PostgresJournal;
pub use self::postgres::{PostgresServer, PostgresTables, SqlRow, SqlTransaction, SqlValue};
pub use self::profile::{Profile, RunQueue, WorkerSettings};
use self::sqlite::SqliteJournal;
pub use self::temporal_server::TemporalServer;
pub use self::transfer::JournalSize;
pub use self::units::{RetryFailed, UnitFailure};
use super::{RunError, artifact_names};

/// The journal of one run. A handle is one worker: it knows the attempts that it has leased, and what it writes about
/// them carries their number.
#[derive(Debug)]
pub struct Journal {
    backend: Box<dyn Backend>,
    leased: LeasedUnits,
}

/// Start of the keys of decisions on trajectories, in the metadata; [`Journal`] counts them as work of people. Decisions on
/// tasks start with `review/`.
pub const TRAJECTORY_REVIEWS: &str = "trajectory-review/";

/// One recorded step of a trajectory.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Position in the trajectory, from 0, without gaps.
    pub position: u64,
    pub payload: Value,
}

impl Journal {
    fn new(backend: impl Backend + 'static) -> Self {
        Self {
            backend: Box::new(backend),
            leased: LeasedUnits::default(),
        }
    }

    /// Opens or creates a journal in a SQLite file. Calls that a dead process left in flight become uncertain.
    pub fn open(path: &Path) -> Result<Self, RunError> {
        Ok(Self::new(SqliteJournal::open(path)?))
    }

    /// Opens or creates a SQLite file that a journal is copied to.
    pub(crate) fn create(path: &Path) -> Result<Self, RunError> {
        Ok(Self::new(SqliteJournal::create(path)?))
    }

    /// As [`Journal::create`], in a schema of PostgreSQL.
    pub(crate) fn create_postgres(server: &PostgresServer, schema: &str) -> Result<Self, RunError> {
        Ok(Self::new(PostgresJournal::create(server, schema)?.0))
    }

    /// Opens a SQLite file that another handle has opened, for a further worker.
    pub fn join(path: &Path) -> Result<Self, RunError> {
        Ok(Self::new(SqliteJournal::join(path)?))
    }

    /// Opens a SQLite file for reading as it is at the first read, while another handle may be writing.
    pub(crate) fn snapshot(path: &Path) -> Result<Self, RunError> {
        let journal = SqliteJournal::open_read_only(path)?;
        journal.lock().execute_batch("BEGIN")?;
        Ok(Self::new(journal))
    }

    /// Opens or creates a journal in a schema of PostgreSQL, as [`Journal::open`]. `calls` is the file that counts paid
    /// calls.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if another process has it open; the server does not answer.
    pub fn open_postgres(
        server: &PostgresServer,
        schema: &str,
        calls: &Path,
    ) -> Result<Self, RunError> {
        Ok(Self::new(PostgresJournal::open(server, schema, calls)?))
    }

    /// Opens a schema of PostgreSQL that another handle has opened, for a further worker.
    pub fn join_postgres(server: &PostgresServer, schema: &str) -> Result<Self, RunError> {
        Ok(Self::new(PostgresJournal::join(server, schema)?))
    }

    /// Opens an existing schema of PostgreSQL for reading, while another process may be writing.
    pub fn open_postgres_read_only(
        server: &PostgresServer,
        schema: &str,
    ) -> Result<Self, RunError> {
        Ok(Self::new(PostgresJournal::open_read_only(server, schema)?))
    }

    /// Whether a folder is that of a run: it has a journal, or says where it is.
    pub fn exists(folder: &Path) -> bool {
        [artifact_names::JOURNAL, artifact_names::POINTER]
            .iter()
            .any(|name| folder.join(name).is_file())
    }

    /// Opens the journal of a run folder for reading, wherever it is, while another process may be writing; `None` if
    /// there is no such run.
    ///
    /// # Errors
    /// The file cannot be read, or the server does not answer.
    pub fn of_run(folder: &Path) -> Result<Option<Self>, RunError> {
        JournalPlace::of(folder)?.read()
    }

    /// As [`Journal::of_run`], for a folder that must be that of a run.
    ///
    /// # Errors
    /// As [`Journal::of_run`]; [`RunError::BadInput`] if there is no journal.
    pub fn read_run(folder: &Path) -> Result<Self, RunError> {
        let place = JournalPlace::of(folder)?;
        let missing = || RunError::BadInput(format!("{} does not exist", place.describe()));
        place.read()?.ok_or_else(missing)
    }

    /// Opens the journal of a run folder for a further writer, while another process may work on the run. It leases no units:
    /// it is for what people decide.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is no journal; it cannot be opened.
    pub fn join_run(folder: &Path) -> Result<Self, RunError> {
        JournalPlace::of(folder)?.join()
    }

    /// Opens an existing SQLite file for reading, while another process may be writing.
    pub fn open_read_only(path: &Path) -> Result<Self, RunError> {
        Ok(Self::new(SqliteJournal::open_read_only(path)?))
    }

    // --- events of trajectories ---------------------------------------------------------------

    /// Appends a step of a trajectory; `position` must be the next one.
    ///
    /// # Errors
    /// [`RunError::LeaseLost`] if this handle leased the unit of that name and another worker leased it since.
    pub fn append(&self, trajectory: &str, position: u64, payload: &Value) -> Result<(), RunError> {
        self.as_leased(trajectory, |attempt| {
            self.backend
                .append(trajectory, position, &payload.to_string(), attempt)
        })
    }

    /// Reads the steps of a trajectory, in order.
    pub fn events(&self, trajectory: &str) -> Result<Vec<Event>, RunError> {
        let events = self.backend.events(trajectory)?.into_iter();
        let events = events.map(|(position, payload)| {
            Ok(Event {
                position,
                payload: serde_json::from_str(&payload)?,
            })
        });
        events.collect()
    }

    /// Number of steps of a trajectory.
    pub fn count_events(&self, trajectory: &str) -> Result<u64, RunError> {
        self.backend.count_events(trajectory)
    }

    /// Deletes the steps of a trajectory, which then starts over.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub fn clear_events(&self, trajectory: &str) -> Result<(), RunError> {
        self.as_leased(trajectory, |attempt| {
            self.backend.clear_events(trajectory, attempt)
        })
    }

    /// Passes the attempt at the unit `item` that this handle leased last, if it did.
    fn as_leased<T>(&self, item: &str, write: impl FnOnce(Option<Attempt<'_>>) -> T) -> T {
        let leased = self.leased.last(item);
        write(leased.as_ref().map(|(stage, number)| Attempt {
            stage,
            item,
            number: *number,
        }))
    }

    // --- metadata ----------------------------------------------------------------------------

    /// Stores metadata of the run, such as the seconds spent per stage.
    pub fn set_metadata(&self, key: &str, value: &Value) -> Result<(), RunError> {
        self.backend.set_metadata(key, &value.to_string(), false)
    }

    /// As [`Journal::set_metadata`], on the disk before it returns.
    pub fn set_metadata_synced(&self, key: &str, value: &Value) -> Result<(), RunError> {
        self.backend.set_metadata(key, &value.to_string(), true)
    }

    /// Number of answers and decisions that people gave: reviews of tasks and trajectories, edited
    /// trajectories, and finished attempts of a person.
    pub(crate) fn work_by_hand(&self) -> Result<u64, RunError> {
        self.backend.work_by_hand()
    }

    /// Reads the metadata stored under `key`.
    pub fn metadata(&self, key: &str) -> Result<Option<Value>, RunError> {
        let text = self.backend.metadata(key)?;
        Ok(text.as_deref().map(serde_json::from_str).transpose()?)
    }

    /// Reads all metadata whose key starts with `prefix`, sorted by key; the prefix is removed.
    pub fn metadata_with_prefix(&self, prefix: &str) -> Result<Vec<(String, Value)>, RunError> {
        let values = self.backend.metadata_with_prefix(prefix)?.into_iter();
        let values = values.map(|(key, value)| Ok((key, serde_json::from_str(&value)?)));
        values.collect()
    }
}

/// The error of a step that is not the next one.
fn out_of_order(trajectory: &str, position: u64) -> RunError {
    RunError::Internal(format!(
        "step {position} of trajectory {trajectory} is out of order"
    ))
}
