//! The run folder: frozen recipe, journal, content-addressed files, artifacts and report.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::frozen_recipe::{self, WhenChanged};
use super::journal::JournalPlace;
use super::replace::write_atomically;
use super::{ContentStore, Journal, Requests, RunError, artifact_names};

/// A run folder; this process has exclusive access while it is open.
#[derive(Debug)]
pub struct RunFolder {
    root: PathBuf,
    journal: Journal,
    store: ContentStore,
    requests: Requests,
    /// Holds the lock; the kernel releases it when the process ends.
    _lock: File,
    /// Deletes the folder of a dry run that may not touch the run's own.
    _scratch: Option<TempDir>,
}

impl RunFolder {
    /// Opens or creates the folder for writing. `recipe` is the resolved recipe as TOML, which is frozen into
    /// the folder.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if another process uses the folder, or if it belongs to a different recipe; the
    /// text shows the differences.
    pub fn open(root: &Path, recipe: &str) -> Result<Self, RunError> {
        Self::open_or_start_over(root, recipe, &WhenChanged::Refuse(None))
    }

    /// As [`RunFolder::open`]; `changed` decides what happens to a folder of a different recipe.
    ///
    /// # Errors
    /// As [`RunFolder::open`]; I/O errors.
    pub fn open_or_start_over(
        root: &Path,
        recipe: &str,
        changed: &WhenChanged,
    ) -> Result<Self, RunError> {
        Self::open_in_profile(root, recipe, changed, None)
    }

    /// As [`RunFolder::open_or_start_over`]. `profile` is a file that says where the journal is; without it, a run that
    /// has begun keeps its journal where it is, and a new run has it in the folder.
    ///
    /// # Errors
    /// As [`RunFolder::open_or_start_over`]; [`RunError::Conflict`] if the journal is elsewhere; the server does not
    /// answer.
    pub fn open_in_profile(
        root: &Path,
        recipe: &str,
        changed: &WhenChanged,
        profile: Option<&Path>,
    ) -> Result<Self, RunError> {
        let at = |path: &Path| format!("run folder {}", path.display());
        fs::create_dir_all(root).map_err(RunError::io(at(root)))?;
        let lock_path = root.join("lock");
        let lock = File::create(&lock_path).map_err(RunError::io(at(&lock_path)))?;
        match lock_within(&lock, LOCK_GRACE) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(RunError::Conflict(format!(
                    "run folder {} is in use by another process; wait for that process to end, or choose another run folder with --run NAME",
                    root.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(RunError::io(at(&lock_path))(error)),
        }
        check_not_lost(root, &JournalPlace::of(root)?)?;
        frozen_recipe::freeze(root, recipe, changed)?;
        let place = match profile {
            Some(profile) => JournalPlace::in_profile(root, profile)?,
            None => JournalPlace::of(root)?,
        };
        let journal = place.open(root)?;
        let store = ContentStore::open(&root.join("files"))?;
        Ok(Self {
            root: root.to_owned(),
            journal,
            store,
            requests: Requests::default(),
            _lock: lock,
            _scratch: None,
        })
    }

    /// The folder for a dry run: `root`, or if that belongs to a different recipe, an empty one beside it, which is
    /// deleted in the end.
    ///
    /// # Errors
    /// As [`RunFolder::open`].
    pub fn open_for_dry_run(root: &Path, recipe: &str) -> Result<Self, RunError> {
        Self::open_for_dry_run_in_profile(root, recipe, None)
    }

    /// As [`RunFolder::open_for_dry_run`] and [`RunFolder::open_in_profile`].
    ///
    /// # Errors
    /// As [`RunFolder::open_in_profile`].
    pub fn open_for_dry_run_in_profile(
        root: &Path,
        recipe: &str,
        profile: Option<&Path>,
    ) -> Result<Self, RunError> {
        if frozen_recipe::changes(root, recipe)?.is_empty() {
            return Self::open_in_profile(root, recipe, &WhenChanged::default(), profile);
        }
        tracing::info!(
            "{} belongs to another recipe: this is the estimate of a run that starts over",
            root.display()
        );
        let beside = root.parent().unwrap_or(root);
        let scratch = tempfile::Builder::new()
            .prefix(".dry-run-")
            .tempdir_in(beside);
        let scratch = scratch.map_err(RunError::io(beside.display().to_string()))?;
        let folder = Self::open(scratch.path(), recipe)?;
        Ok(Self {
            _scratch: Some(scratch),
            ..folder
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    pub fn store(&self) -> &ContentStore {
        &self.store
    }

    /// The requests of this process to models.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// Writes an artifact or report atomically: a reader sees either the old or the new content.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, RunError> {
        let path = self.root.join(name);
        write_atomically(&path, bytes)?;
        Ok(path)
    }
}

/// A killed run holds its lock until its last sandbox has ended, about one second later; a command that is
/// repeated immediately waits for it.
const LOCK_GRACE: Duration = Duration::from_secs(5);

/// Locks a file, blocking this thread for at most `grace`. A process that is ending, or that another thread
/// has just started, briefly holds a copy of the lock.
///
/// # Errors
/// [`TryLockError::WouldBlock`] if another process still holds the lock.
pub fn lock_within(lock: &File, grace: Duration) -> Result<(), TryLockError> {
    let since = Instant::now();
    loop {
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) if since.elapsed() < grace => {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// A run without its journal would start over: with the whole budget, and with results that do not belong to its
/// artifacts.
fn check_not_lost(root: &Path, journal: &JournalPlace) -> Result<(), RunError> {
    let Some(artifact) = artifact_names::ALL
        .iter()
        .find(|name| root.join(name).exists())
    else {
        return Ok(());
    };
    if !journal.is_blank()? {
        return Ok(());
    }
    Err(RunError::BadInput(format!(
        "{} is missing or empty, but the run has {artifact}; restore it from a backup (a SQLite file together with its \
         -wal file), or start a new run with --run NAME; to start this one over and pay for its calls again, delete {}",
        journal.describe(),
        root.display()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExitCode;

    #[test]
    fn a_folder_in_use_is_a_conflict_until_it_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let first = RunFolder::open(root.path(), "a = 1").unwrap();
        let error = RunFolder::open(root.path(), "a = 1").unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::Conflict);
        assert!(error.to_string().contains("--run NAME"), "{error}");
        drop(first);
        RunFolder::open(root.path(), "a = 1").unwrap();
    }

    #[test]
    fn a_run_without_its_journal_does_not_start_over() {
        let root = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(root.path(), "").unwrap();
        folder.write(artifact_names::TASKS, b"").unwrap();
        drop(folder);
        drop(RunFolder::open(root.path(), "").unwrap());
        let journal = root.path().join("journal.sqlite");
        fs::write(&journal, "").unwrap();
        for _ in 0..2 {
            let error = RunFolder::open(root.path(), "").unwrap_err();
            assert_eq!(error.exit_code(), crate::ExitCode::BadInput);
            let text = error.to_string();
            assert!(
                text.contains("is missing or empty, but the run has tasks.jsonl"),
                "{text}"
            );
            let _ = fs::remove_file(&journal);
        }
    }
}
