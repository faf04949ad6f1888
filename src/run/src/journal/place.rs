//! Where the journal of a run folder is: a SQLite file in it, or a schema of PostgreSQL that a file in it names.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::postgres::{PostgresJournal, PostgresServer};
use super::sqlite::SqliteJournal;
use super::{Journal, Profile, RunQueue, WorkerSettings};
use crate::artifact_names::{BLOBS, CALLS, COPIES, JOURNAL, POINTER};
use crate::store::{BucketStore, RunBucket, Store, end_uploads};
use crate::{RunError, write_atomically};

/// The journal of a run folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JournalPlace {
    Sqlite(PathBuf),
    Postgres(JournalPointer),
}

/// Content of the file that names a journal in PostgreSQL.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JournalPointer {
    /// Profile with the address of the server.
    pub(super) profile: PathBuf,
    /// Schema that holds the tables.
    pub(super) schema: String,
}

/// What a worker has of a run: its journal, where its files are kept, and what distributes its units.
pub(crate) struct JoinedRun {
    pub(crate) journal: Journal,
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) queue: Option<RunQueue>,
}

impl JournalPointer {
    pub(super) fn server(&self) -> Result<PostgresServer, RunError> {
        Ok(Profile::load(&self.profile)?.postgres)
    }

    /// The folder of the run in the bucket has the name of the schema.
    fn store(&self, profile: &Profile) -> Result<Option<Arc<dyn Store>>, RunError> {
        let server = profile.store.as_ref();
        let store = server
            .map(|server| BucketStore::new(server, &self.schema))
            .transpose()?;
        Ok(store.map(|store| -> Arc<dyn Store> { Arc::new(store) }))
    }

    /// The queue of the run has the name of the schema.
    fn queue(&self, profile: &Profile) -> Option<RunQueue> {
        let server = profile.temporal.clone()?;
        Some(RunQueue {
            server,
            run: self.schema.clone(),
            lease: profile.workers.lease(),
        })
    }

    /// Makes it the journal of the run folder `root`.
    pub(super) fn write(&self, root: &Path) -> Result<(), RunError> {
        self.write_to(&root.join(POINTER))
    }

    pub(super) fn write_to(&self, path: &Path) -> Result<(), RunError> {
        let text = toml::to_string(self).map_err(|error| RunError::Internal(error.to_string()))?;
        let text = format!("# A journal of this run in PostgreSQL.\n{text}");
        write_atomically(path, text.as_bytes())
    }

    /// `None` if there is no such file.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, RunError> {
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(RunError::io(path.display().to_string()))?,
        };
        let pointer = toml::from_str(&text);
        pointer.map_err(|error| RunError::BadInput(format!("{}: {error}", path.display())))
    }
}

impl JournalPlace {
    /// The journal of an existing run folder, or the file that it will be in.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the file that names a journal in PostgreSQL cannot be parsed.
    pub(crate) fn of(root: &Path) -> Result<Self, RunError> {
        let pointer = JournalPointer::read(&root.join(POINTER))?;
        Ok(pointer.map_or_else(|| Self::Sqlite(root.join(JOURNAL)), Self::Postgres))
    }

    /// The journal of the folder if it is to be where `profile` says; a run that begins gets a new schema there.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if the run has its journal elsewhere.
    pub(crate) fn in_profile(root: &Path, profile: &Path) -> Result<Self, RunError> {
        let server = Profile::load(profile)?.postgres;
        let profile = profile
            .canonicalize()
            .map_err(RunError::io(profile.display().to_string()))?;
        let pointer = match Self::of(root)? {
            Self::Postgres(pointer) if pointer.profile == profile => {
                return Ok(Self::Postgres(pointer));
            }
            Self::Postgres(pointer) => {
                if PostgresJournal::is_blank(&server, &pointer.schema)? {
                    return Err(RunError::Conflict(format!(
                        "the journal of {} is in schema {} of the server that {} names, and the server that {} names \
                         does not have it; use --profile {}, or choose another run folder with --run NAME",
                        root.display(),
                        pointer.schema,
                        pointer.profile.display(),
                        profile.display(),
                        pointer.profile.display(),
                    )));
                }
                JournalPointer { profile, ..pointer }
            }
            Self::Sqlite(path) if !SqliteJournal::is_blank(&path)? => {
                return Err(RunError::Conflict(format!(
                    "the journal of {} is in SQLite; move it with `pybench run move {} --profile {}`, omit --profile, or choose \
                     another run folder with --run NAME",
                    root.display(),
                    root.display(),
                    profile.display()
                )));
            }
            Self::Sqlite(_) => {
                // Before anything names it.
                PostgresJournal::reach(&server)?;
                let schema = new_schema(root);
                JournalPointer { profile, schema }
            }
        };
        pointer.write(root)?;
        Ok(Self::Postgres(pointer))
    }

    /// Whether there is no journal yet.
    pub(crate) fn is_blank(&self) -> Result<bool, RunError> {
        match self {
            Self::Sqlite(path) => SqliteJournal::is_blank(path),
            Self::Postgres(pointer) => {
                PostgresJournal::is_blank(&pointer.server()?, &pointer.schema)
            }
        }
    }

    /// Opens or creates the journal of the run folder `root`.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if the run is moved to another place, or if another process has the journal open.
    pub(crate) fn open(&self, root: &Path) -> Result<Journal, RunError> {
        let journal = self.open_to_move(root)?;
        self.check_not_moved(&journal)?;
        Ok(journal)
    }

    /// As [`Self::open`], also if the run is moved to another place.
    pub(crate) fn open_to_move(&self, root: &Path) -> Result<Journal, RunError> {
        match self {
            Self::Sqlite(path) => Journal::open(path),
            Self::Postgres(pointer) => {
                Journal::open_postgres(&pointer.server()?, &pointer.schema, &root.join(CALLS))
            }
        }
    }

    /// Opens the journal of a run that another process has opened, for a further worker. `profile` names the server.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if the journal is in SQLite, or if the server does not have it.
    pub(crate) fn join_as_worker(root: &Path, profile: &Path) -> Result<JoinedRun, RunError> {
        let Self::Postgres(pointer) = Self::of(root)? else {
            return Err(RunError::Conflict(format!(
                "the journal of {} is in SQLite, which workers cannot join; begin a run with `synthesize --profile`",
                root.display()
            )));
        };
        let loaded = Profile::load(profile)?;
        let server = &loaded.postgres;
        if PostgresJournal::is_blank(server, &pointer.schema)? {
            return Err(RunError::Conflict(format!(
                "the server that {} names does not have the journal of {} (schema {}); use --profile {}",
                profile.display(),
                root.display(),
                pointer.schema,
                pointer.profile.display()
            )));
        }
        let journal = Journal::join_postgres(server, &pointer.schema)?;
        let store = pointer.store(&loaded)?;
        let queue = pointer.queue(&loaded);
        Self::Postgres(pointer).check_not_moved(&journal)?;
        Ok(JoinedRun {
            journal,
            store,
            queue,
        })
    }

    /// Where the files of the run are kept beside its folder.
    pub(crate) fn store(&self) -> Result<Option<Arc<dyn Store>>, RunError> {
        match self {
            Self::Sqlite(path) => {
                let store = bucket_beside(path)?;
                Ok(store.map(|store| -> Arc<dyn Store> { Arc::new(store) }))
            }
            Self::Postgres(pointer) => pointer.store(&Profile::load(&pointer.profile)?),
        }
    }

    /// The file that says where the journal is; `None` if it is in the run folder.
    pub(crate) fn profile(&self) -> Option<&Path> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(pointer) => Some(&pointer.profile),
        }
    }

    /// Where copies of the run folder `root` are kept, which is their owner.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if they are those of another folder.
    pub(crate) fn copies(&self, root: &Path) -> Result<Option<BucketStore>, RunError> {
        match self {
            Self::Sqlite(path) => bucket_beside(path),
            Self::Postgres(pointer) => {
                let server = Profile::load(&pointer.profile)?.store;
                server
                    .map(|server| RunBucket::own_copies(root, &server))
                    .transpose()
            }
        }
    }

    /// The folder that holds the content-addressed files of the run, beside that of its copies; `None` if that one has them.
    pub(crate) fn files_folder(&self) -> Option<String> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(pointer) => Some(pointer.schema.clone()),
        }
    }

    /// The server that distributes the units of the run.
    pub(crate) fn queue(&self) -> Result<Option<RunQueue>, RunError> {
        match self {
            Self::Sqlite(_) => Ok(None),
            Self::Postgres(pointer) => Ok(pointer.queue(&Profile::load(&pointer.profile)?)),
        }
    }

    /// How workers share the run; `None` if they cannot join it.
    pub(crate) fn workers(&self) -> Result<Option<WorkerSettings>, RunError> {
        match self {
            Self::Sqlite(_) => Ok(None),
            Self::Postgres(pointer) => Ok(Some(Profile::load(&pointer.profile)?.workers)),
        }
    }

    /// Opens the journal for reading; `None` if there is none.
    pub(crate) fn read(&self) -> Result<Option<Journal>, RunError> {
        match self {
            Self::Sqlite(path) if !path.is_file() => Ok(None),
            Self::Sqlite(path) => Journal::open_read_only(path).map(Some),
            Self::Postgres(_) if self.is_blank()? => Ok(None),
            Self::Postgres(pointer) => {
                Journal::open_postgres_read_only(&pointer.server()?, &pointer.schema).map(Some)
            }
        }
    }

    /// Opens the journal for a further writer.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is none.
    pub(crate) fn join(&self) -> Result<Journal, RunError> {
        if self.is_blank()? {
            let text = format!("{} does not exist", self.describe());
            return Err(RunError::BadInput(text));
        }
        let journal = match self {
            Self::Sqlite(path) => Journal::join(path),
            Self::Postgres(pointer) => Journal::join_postgres(&pointer.server()?, &pointer.schema),
        }?;
        self.check_not_moved(&journal)?;
        Ok(journal)
    }

    /// Refuses a journal that is elsewhere, or is being moved.
    fn check_not_moved(&self, journal: &Journal) -> Result<(), RunError> {
        let Some(to) = journal.moved_to()? else {
            return Ok(());
        };
        let stay = match self {
            Self::Sqlite(_) => "--local".to_owned(),
            Self::Postgres(pointer) => format!("--profile {}", pointer.profile.display()),
        };
        Err(RunError::Conflict(format!(
            "the journal in {} was moved to {to}, or its move was interrupted: repeat `pybench run move` to finish the \
             move, or leave the journal where it is with `pybench run move NAME {stay}`",
            self.describe()
        )))
    }

    /// Deletes what is outside the run folder.
    pub(crate) fn delete_remote(&self) -> Result<(), RunError> {
        if let Some(store) = self.store()? {
            // Only a run that `--runs-dir` keeps in a bucket has its copies there.
            for folder in [COPIES, BLOBS, "artifacts", "files"] {
                for key in store.list(folder)? {
                    store.delete(&key)?;
                }
            }
            end_uploads(store.as_ref());
        }
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(pointer) => PostgresJournal::delete(&pointer.server()?, &pointer.schema),
        }
    }

    /// The journal, for messages.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Sqlite(path) => path.display().to_string(),
            Self::Postgres(pointer) => format!(
                "schema {} of the PostgreSQL server that {} names",
                pointer.schema,
                pointer.profile.display()
            ),
        }
    }
}

/// The bucket of the run whose journal is in the file `journal`.
fn bucket_beside(journal: &Path) -> Result<Option<BucketStore>, RunError> {
    let bucket = RunBucket::of(journal.parent().unwrap_or(Path::new(".")))?;
    bucket.map(|bucket| bucket.store()).transpose()
}

/// A schema that no other run has, with the name of the run in it.
pub(super) fn new_schema(root: &Path) -> String {
    let random = RandomState::new().build_hasher().finish();
    format!("{}{random:016x}", schema_prefix(root))
}

/// What the schemas of all runs with the name of this folder begin with.
pub(super) fn schema_prefix(root: &Path) -> String {
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    let plain = |c: char| match c.is_ascii_alphanumeric() {
        true => c.to_ascii_lowercase(),
        false => '_',
    };
    let name: String = name.chars().map(plain).take(40).collect();
    format!("run_{name}_")
}
