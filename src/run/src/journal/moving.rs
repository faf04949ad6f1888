//! The place that a journal is moved to, and how it takes over.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;

use super::place::{JournalPlace, JournalPointer, new_schema};
use super::postgres::PostgresJournal;
use super::{Journal, Profile};
use crate::RunError;
use crate::artifact_names::{INCOMING, JOURNAL, MOVE, POINTER};

impl JournalPlace {
    /// Where the journal of `root`, which is here, is to be: where `profile` says, or in the folder. A schema that a move
    /// begins is noted in the folder, so that the same command continues with it.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if a move to another server was begun; the server does not answer.
    pub(crate) fn destination(
        &self,
        root: &Path,
        profile: Option<&Path>,
    ) -> Result<Self, RunError> {
        let Some(profile) = profile else {
            return Ok(Self::Sqlite(root.join(JOURNAL)));
        };
        let server = Profile::load(profile)?.postgres;
        let profile = profile
            .canonicalize()
            .map_err(RunError::io(profile.display().to_string()))?;
        if let Self::Postgres(pointer) = self
            && !PostgresJournal::is_blank(&server, &pointer.schema)?
        {
            let schema = pointer.schema.clone();
            return Ok(Self::Postgres(JournalPointer { profile, schema }));
        }
        match JournalPointer::read(&root.join(MOVE))? {
            Some(begun) if begun.profile == profile => Ok(Self::Postgres(begun)),
            Some(begun) => Err(RunError::Conflict(format!(
                "a move of {} to the server that {} names was begun; finish it with --profile {}, or give it up by moving \
                 the run to where it is",
                root.display(),
                begun.profile.display(),
                begun.profile.display()
            ))),
            None => {
                // Before anything names it.
                PostgresJournal::reach(&server)?;
                let schema = new_schema(root);
                let pointer = JournalPointer { profile, schema };
                pointer.write_to(&root.join(MOVE))?;
                Ok(Self::Postgres(pointer))
            }
        }
    }

    /// Whether both are the same journal, perhaps with other profiles.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Sqlite(_), Self::Sqlite(_)) => true,
            (Self::Postgres(own), Self::Postgres(other)) => own.schema == other.schema,
            _ => false,
        }
    }

    /// Opens the journal there that is to be filled.
    pub(crate) fn create(&self, root: &Path) -> Result<Journal, RunError> {
        match self {
            Self::Sqlite(_) => {
                remove_database(root, INCOMING)?;
                Journal::create(&root.join(INCOMING))
            }
            Self::Postgres(pointer) => {
                Journal::create_postgres(&pointer.server()?, &pointer.schema)
            }
        }
    }

    /// Makes the filled journal the one of the run, in one step.
    pub(crate) fn take_over(&self, root: &Path) -> Result<(), RunError> {
        match self {
            Self::Postgres(pointer) => pointer.write(root)?,
            Self::Sqlite(path) => {
                check_whole(root)?;
                // Nothing that an older file has left may be applied to the new one.
                for rest in ["-wal", "-shm"] {
                    remove(&root.join(format!("{JOURNAL}{rest}")))?;
                }
                fs::rename(root.join(INCOMING), path)
                    .map_err(RunError::io(path.display().to_string()))?;
                sync(root)?;
                remove(&root.join(POINTER))?;
            }
        }
        sync(root)?;
        remove(&root.join(MOVE))
    }

    /// Leaves the journal here, and deletes what a move that is given up has made.
    pub(crate) fn give_up_move(&self, root: &Path) -> Result<(), RunError> {
        if let Self::Postgres(pointer) = self {
            // With the profile that was given now.
            pointer.write(root)?;
        }
        if let Some(begun) = JournalPointer::read(&root.join(MOVE))? {
            let begun = Self::Postgres(begun);
            if !self.is_same(&begun) {
                begun.delete_remote()?;
            }
        }
        remove_database(root, INCOMING)?;
        remove(&root.join(MOVE))
    }
}

/// Checks that the file that a journal was copied to has all of it. SQLite keeps its log when it is closed and cannot write
/// the log into the file, as on a full disk.
fn check_whole(root: &Path) -> Result<(), RunError> {
    let log = root.join(format!("{INCOMING}-wal"));
    match log.exists() {
        true => Err(RunError::Environment(format!(
            "SQLite could not write {} into its database: is the disk full? Make room and repeat the command; the run is still at \
             its old place",
            log.display()
        ))),
        false => Ok(()),
    }
}

/// Deletes a SQLite file and what belongs to it.
fn remove_database(root: &Path, name: &str) -> Result<(), RunError> {
    for rest in ["-wal", "-shm", ""] {
        remove(&root.join(format!("{name}{rest}")))?;
    }
    Ok(())
}

fn remove(path: &Path) -> Result<(), RunError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(RunError::io(path.display().to_string())(error))
        }
        _ => Ok(()),
    }
}

/// Lets what was renamed or deleted in a folder stay so without power.
fn sync(folder: &Path) -> Result<(), RunError> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(RunError::io(folder.display().to_string()))
}
