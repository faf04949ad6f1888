//! Tasks that are said less precisely.

use pybench_compose::TaskSeed;
use pybench_run::{ContentStore, RunError};
use pybench_types::task::Task;

/// A composed task whose files are in the store, said less precisely if that leaves one reading and needs no wording that is
/// avoided; otherwise as it is.
///
/// # Errors
/// A file cannot be read.
pub(super) fn said_imprecisely(
    task: Task,
    store: &ContentStore,
    seed: TaskSeed<'_>,
) -> Result<Task, RunError> {
    let bytes = task.files.iter().map(|file| store.get(&file.id));
    let bytes: Vec<Vec<u8>> = bytes.collect::<Result<_, _>>()?;
    let said = pybench_compose::imprecise(&task, &bytes, seed.seed);
    let said = said.filter(|said| seed.avoided.of_task(said).is_none());
    Ok(said.unwrap_or(task))
}
