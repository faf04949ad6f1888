//! Places for journals.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use pybench_run::{Journal, PostgresServer, RunError};
use pybench_testing::postgres;

use crate::journal::Place;

/// A file in a temporary folder.
pub(crate) struct SqlitePlace(tempfile::TempDir);

impl SqlitePlace {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("journal.sqlite")
    }
}

impl Place for SqlitePlace {
    fn try_open(&self) -> Result<Journal, RunError> {
        Journal::open(&self.path())
    }

    fn join(&self) -> Journal {
        Journal::join(&self.path()).unwrap()
    }

    fn read(&self) -> Journal {
        Journal::open_read_only(&self.path()).unwrap()
    }

    fn lose(&self) {
        std::fs::remove_file(self.path()).unwrap();
    }
}

/// A schema of the server of this program.
pub(crate) struct PostgresPlace {
    server: PostgresServer,
    pub(crate) schema: String,
    folder: tempfile::TempDir,
}

impl PostgresPlace {
    /// `None`, and the test is skipped, if there is no server.
    pub(crate) fn new() -> Option<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        Some(Self {
            server: postgres::address()?,
            schema: format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed)),
            folder: tempfile::tempdir().unwrap(),
        })
    }
}

impl PostgresPlace {
    /// The same place, reached through a proxy of this machine.
    pub(crate) fn through(mut self, port: u16) -> Self {
        self.server.port = port;
        self
    }
}

impl Place for PostgresPlace {
    fn try_open(&self) -> Result<Journal, RunError> {
        let calls = self.folder.path().join("journal.calls");
        Journal::open_postgres(&self.server, &self.schema, &calls)
    }

    fn join(&self) -> Journal {
        Journal::join_postgres(&self.server, &self.schema).unwrap()
    }

    fn read(&self) -> Journal {
        Journal::open_postgres_read_only(&self.server, &self.schema).unwrap()
    }

    fn lose(&self) {
        postgres::sql(&format!("DROP SCHEMA {} CASCADE", self.schema));
    }
}
