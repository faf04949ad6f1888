//! The run folder: frozen recipe, journal, content-addressed files, artifacts and report.

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::blocking::waiting;
use super::frozen_recipe::{self, WhenChanged};
use super::journal::JournalPlace;
use super::replace::write_atomically;
use super::store::end_uploads;
use super::{
    ContentStore, Journal, Profile, Requests, RunError, RunQueue, Turns, WorkerSettings,
    artifact_names,
};

/// A run folder. One process has it open, its coordinator; workers join it and write nothing but the journal and
/// content-addressed files.
#[derive(Debug)]
pub struct RunFolder {
    root: PathBuf,
    journal: Journal,
    store: ContentStore,
    requests: Requests,
    turns: Turns,
    /// Whether this process gives its units back after their present step.
    draining: AtomicBool,
    /// How workers share the run; `None` if they cannot join it.
    workers: Option<WorkerSettings>,
    queue: Option<RunQueue>,
    /// The queue of the run that was here before it started over.
    left_queue: Option<RunQueue>,
    /// Held while the run is copied to its bucket.
    copying: Mutex<()>,
    /// Holds the lock; the kernel releases it when the process ends. Workers have none.
    _lock: Option<File>,
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
        fs::create_dir_all(root).map_err(RunError::io(format!("run folder {}", root.display())))?;
        let lock = lock_folder(root)?;
        check_not_lost(root, &JournalPlace::of(root)?)?;
        let left_queue = frozen_recipe::freeze(root, recipe, changed)?;
        let place = match profile {
            Some(profile) => JournalPlace::in_profile(root, profile)?,
            None => JournalPlace::of(root)?,
        };
        let journal = place.open(root)?;
        let remote = place.store()?;
        if remote.is_some() {
            journal.share(root, recipe)?;
        }
        let store = ContentStore::open(&root.join("files"))?.with_remote(remote);
        let folder = Self {
            root: root.to_owned(),
            journal,
            store,
            requests: Requests::default(),
            turns: Turns::default(),
            draining: AtomicBool::new(false),
            workers: place.workers()?,
            queue: place.queue()?,
            left_queue,
            copying: Mutex::default(),
            _lock: Some(lock),
            _scratch: None,
        };
        folder.end_uploads();
        Ok(folder)
    }

    /// Ends uploads of files that were begun by processes which have been killed. One that a worker has begun at this moment
    /// begins again. A failure is only logged.
    pub fn end_uploads(&self) {
        if let Some(store) = self.store.remote() {
            end_uploads(store);
        }
    }

    /// Whether the run in `root` has begun and has its journal where workers can join it.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if its journal is in SQLite; the server does not answer.
    pub fn can_join(root: &Path) -> Result<bool, RunError> {
        let place = JournalPlace::of(root)?;
        match (&place, place.is_blank()?) {
            (_, true) => Ok(false),
            (JournalPlace::Postgres(_), false) => Ok(true),
            (JournalPlace::Sqlite(_), false) => Err(RunError::Conflict(format!(
                "the journal of {} is in SQLite, which workers cannot join; begin a run with `synthesize --profile`",
                root.display()
            ))),
        }
    }

    /// Lets a worker find a run on a machine that does not have its folder: if `root` is no folder that a coordinator has
    /// made, the journal is looked up on the server of `profile`, which must name a store.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if the server has several such runs, or does not answer.
    pub fn attach(root: &Path, profile: &Path) -> Result<(), RunError> {
        match frozen_recipe::read(root)?.is_empty() {
            true => JournalPlace::attach(root, profile),
            false => Ok(()),
        }
    }

    /// Joins the run in `root` as a worker. `profile` is a file that says where its journal is.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if the journal is elsewhere; the server does not answer.
    pub fn join(root: &Path, profile: &Path) -> Result<Self, RunError> {
        let joined = JournalPlace::join_as_worker(root, profile)?;
        Ok(Self {
            root: root.to_owned(),
            journal: joined.journal,
            store: ContentStore::open(&root.join("files"))?.with_remote(joined.store),
            requests: Requests::default(),
            turns: Turns::default(),
            draining: AtomicBool::new(false),
            workers: Some(Profile::load(profile)?.workers),
            queue: joined.queue,
            left_queue: None,
            copying: Mutex::default(),
            _lock: None,
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

    /// How workers share the run; `None` if they cannot join it.
    pub fn workers(&self) -> Option<WorkerSettings> {
        self.workers
    }

    /// The profile of the run, for further runs that belong to it; `None` if its journal is in the folder.
    ///
    /// # Errors
    /// The file that names it cannot be read.
    pub fn profile(&self) -> Result<Option<PathBuf>, RunError> {
        let place = JournalPlace::of(&self.root)?;
        Ok(place.profile().map(Path::to_owned))
    }

    /// The server that distributes the units of the run, if the profile names one.
    pub fn queue(&self) -> Option<&RunQueue> {
        self.queue.as_ref()
    }

    /// The queue of the run that was here before it started over, which may still have units of it.
    pub fn left_queue(&self) -> Option<&RunQueue> {
        self.left_queue.as_ref()
    }

    /// The turns of this process's attempts; `None` if there is no queue to tell of them.
    pub fn turns(&self) -> Option<&Turns> {
        self.queue.as_ref().map(|_| &self.turns)
    }

    /// Lets this process give its units back after their present step.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Waits until no thread of this process copies the run.
    pub(crate) fn start_copying(&self) -> MutexGuard<'_, ()> {
        waiting(|| self.copying.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// The frozen recipe, as TOML.
    ///
    /// # Errors
    /// I/O errors; the journal cannot be read.
    pub fn frozen_recipe(&self) -> Result<String, RunError> {
        match self.is_elsewhere()? {
            true => Ok(self.journal.shared_recipe()?.unwrap_or_default()),
            false => frozen_recipe::read(&self.root),
        }
    }

    /// Whether this is the folder of a worker, and that of the coordinator is on another machine.
    pub(crate) fn is_elsewhere(&self) -> Result<bool, RunError> {
        Ok(frozen_recipe::read(&self.root)?.is_empty())
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

/// Takes the lock of a run folder, which the kernel releases when the file is closed.
///
/// # Errors
/// [`RunError::Conflict`] if another process has it; I/O errors.
pub(crate) fn lock_folder(root: &Path) -> Result<File, RunError> {
    let path = root.join("lock");
    let wrap = || RunError::io(format!("run folder {}", path.display()));
    let lock = File::create(&path).map_err(wrap())?;
    match lock_within(&lock, LOCK_GRACE) {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(RunError::Conflict(format!(
            "run folder {} is in use by another process; wait for that process to end, or choose another run folder with \
             --run NAME",
            root.display()
        ))),
        Err(TryLockError::Error(error)) => Err(wrap()(error)),
    }
}

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
