//! Tasks that are said less precisely.

use pybench_compose::{Made, TaskSeed};
use pybench_run::{ContentStore, RunError};
use pybench_types::id::Digest;
use pybench_types::task::Task;

/// A composed task whose crawled files are in the store, said less precisely if that leaves one reading and needs no wording
/// that is avoided; otherwise as it is.
///
/// # Errors
/// A file cannot be read.
pub(super) fn said_imprecisely(
    Made { task, files }: Made,
    store: &ContentStore,
    seed: TaskSeed<'_>,
) -> Result<Made, RunError> {
    let bytes = task.files.iter().map(|file| {
        let new = files.iter().find(|new| Digest::of_bytes(new) == file.id);
        new.map_or_else(|| store.get(&file.id), |new| Ok(new.clone()))
    });
    let bytes: Vec<Vec<u8>> = bytes.collect::<Result<_, _>>()?;
    let said = pybench_compose::imprecise(&task, &bytes, seed.seed);
    let said = said.filter(|said| seed.avoided.of_task(said).is_none());
    let task = said.unwrap_or(task);
    Ok(Made { task, files })
}

/// A composed task with a typo in the name of a file, if only one file can be meant and no wording is needed that is
/// avoided; otherwise as it is.
pub(super) fn with_file_typo(task: Task, seed: TaskSeed<'_>) -> Task {
    let said = pybench_compose::with_file_typo(&task, seed.seed);
    let said = said.filter(|said| seed.avoided.of_task(said).is_none());
    said.unwrap_or(task)
}
