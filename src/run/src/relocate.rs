//! Moves a run between a journal in its folder and one in PostgreSQL, with its files.
//!
//! The old journal is marked before anything is copied, so that no process works on it meanwhile, and one step makes the
//! copy the journal of the run. A move that is killed is repeated from its beginning.

use std::path::Path;

use pybench_types::id::Digest;

use crate::artifacts::{fetch_artifacts, store_artifacts};
use crate::folder::lock_folder;
use crate::journal::JournalPlace;
use crate::store::{ExpectedFile, FolderStore, Store};
use crate::{ContentStore, Journal, JournalSize, RunError, RunQueue};

/// A run that has been moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// The old journal, for messages; it is marked as moved.
    pub from: String,
    /// The new one.
    pub to: String,
    pub size: JournalSize,
    /// The queue at the old place, which may still have units of the run.
    pub left_queue: Option<RunQueue>,
}

/// Moves the journal and the files of the run in `root` to where `profile` says, or into the folder. `None` if they are
/// there; a move to elsewhere that was begun is given up then.
///
/// # Errors
/// [`RunError::Conflict`] if a process works on the run; errors of the databases and stores.
pub fn relocate(root: &Path, profile: Option<&Path>) -> Result<Option<Relocation>, RunError> {
    let _lock = lock_folder(root)?;
    let source = JournalPlace::of(root)?;
    if source.is_blank()? {
        return Err(RunError::BadInput(format!(
            "{} has no journal, so there is nothing to move",
            root.display()
        )));
    }
    let target = source.destination(root, profile)?;
    let journal = source.open_to_move(root)?;
    if source.is_same(&target) {
        journal.mark_moved(None)?;
        target.give_up_move(root)?;
        return Ok(None);
    }
    let (from, to) = (source.describe(), target.describe());
    journal.mark_moved(Some(&to))?;
    check_no_workers(&journal)?;
    let (old, new) = (source.store()?, target.store()?);
    if let Some(store) = &old {
        fetch_files(root, &journal, store.as_ref())?;
    }
    if let Some(store) = &new {
        store_files(root, &journal, store.as_ref())?;
    }
    let size = {
        let copy = target.create(root)?;
        journal.copy_to(&copy)?
    };
    let left_queue = source.queue()?;
    target.take_over(root)?;
    Ok(Some(Relocation {
        from,
        to,
        size,
        left_queue,
    }))
}

/// Checks, after the journal was marked, that no worker has joined it. A worker that joins looks for the mark after it has
/// registered, so that one of the two sees the other.
fn check_no_workers(journal: &Journal) -> Result<(), RunError> {
    let workers = journal.members()?.len();
    if workers == 0 {
        return Ok(());
    }
    journal.mark_moved(None)?;
    Err(RunError::Conflict(format!(
        "workers that have joined the run: {workers}. End them (SIGTERM lets them finish their turns) and repeat the command; \
         workers that were killed count until their leases end"
    )))
}

/// Stores the content-addressed files and the artifacts of a run folder.
///
/// # Errors
/// A file cannot be read, or the store cannot be written.
pub(crate) fn store_files(
    root: &Path,
    journal: &Journal,
    store: &dyn Store,
) -> Result<(), RunError> {
    let files = ContentStore::open(&root.join("files"))?;
    let keys = FolderStore::new(root).list("files")?;
    for key in &keys {
        let name = key.rsplit('/').next().unwrap_or_default();
        // Another file there is none of the run's.
        if let Ok(id) = Digest::try_from(name.to_owned()) {
            store.put(key, &files.checked_path(&id)?)?;
        }
    }
    store_artifacts(root, journal, store)
}

/// Reads what a run folder lacks.
fn fetch_files(root: &Path, journal: &Journal, store: &dyn Store) -> Result<(), RunError> {
    for key in store.list("files")? {
        let path = root.join(&key);
        let name = key.rsplit('/').next().unwrap_or_default();
        if !path.exists()
            && let Ok(id) = Digest::try_from(name.to_owned())
        {
            store.fetch_expected(&key, &path, &ExpectedFile::with_digest(&id))?;
        }
    }
    fetch_artifacts(root, journal, store)
}
