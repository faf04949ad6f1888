//! Reads the held-out tasks of a run: of a loop, or the test split of a dataset.

use std::collections::HashSet;
use std::path::Path;

use pybench_datasets::{DatasetError, read};
use pybench_run::artifacts::{HELD_OUT, TASKS};
use pybench_run::{ContentStore, RunError};
use pybench_types::id::Digest;
use pybench_types::task::Task;

/// Reads the held-out tasks of a run folder, in the order of the run, and copies their files to
/// `store`.
///
/// # Errors
/// [`RunError::BadInput`] if the run or its dataset does not exist or is invalid.
pub(super) fn held_out(run: &Path, store: &ContentStore) -> Result<Vec<Task>, RunError> {
    let source = ContentStore::open(&run.join("files"))?;
    let mut tasks = Vec::new();
    for task in of_run(run)? {
        for file in task.files.iter().chain(&task.held_out) {
            let id = store.put(&source.get(&file.id)?)?;
            if id != file.id {
                return Err(RunError::BadInput(format!(
                    "{}: the content of {}, an input of task {}, does not match its digest",
                    run.display(),
                    file.name,
                    task.id.short()
                )));
            }
        }
        tasks.push(task);
    }
    Ok(tasks)
}

/// The held-out tasks of a run: those that a loop keeps from its rounds, or those of the test split of its dataset.
fn of_run(run: &Path) -> Result<Vec<Task>, RunError> {
    if HELD_OUT.exists(run) {
        return HELD_OUT.read_all(run);
    }
    let ids = test_ids(&run.join("dataset"))?;
    let tasks = TASKS.read(run)?;
    tasks
        .filter(|task| !matches!(task, Ok(task) if !ids.contains(&task.id)))
        .collect()
}

/// Ids of the tasks in the test split of a dataset.
fn test_ids(dataset: &Path) -> Result<HashSet<Digest>, RunError> {
    let wrong = |error: DatasetError| {
        RunError::BadInput(format!(
            "{error}; run `pybench synthesize` to make the dataset"
        ))
    };
    let mut ids = HashSet::new();
    let shards = read::shards(dataset).map_err(wrong)?;
    for shard in shards.iter().filter(|shard| shard.split == "test") {
        for row in read::rows(&shard.path).map_err(wrong)? {
            ids.insert(row.map_err(wrong)?.task_id);
        }
    }
    Ok(ids)
}
