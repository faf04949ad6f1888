//! Reads the held-out library tasks of a pipeline run: the test split of its dataset.

use std::collections::HashSet;
use std::path::Path;

use pybench_datasets::{DatasetError, read};
use pybench_run::artifacts::TASKS;
use pybench_run::run_selection::stage_command;
use pybench_run::{ContentStore, RunError};
use pybench_types::id::Digest;
use pybench_types::task::Task;

/// Reads the tasks of the test split of a run folder, in the order of the run, and copies their files to
/// `store`.
///
/// # Errors
/// [`RunError::BadInput`] if the run or its dataset does not exist or is invalid.
pub(super) fn held_out(run: &Path, store: &ContentStore) -> Result<Vec<Task>, RunError> {
    let ids = test_ids(&run.join("dataset"))?;
    let source = ContentStore::open(&run.join("files"))?;
    let mut tasks = Vec::new();
    for task in TASKS.read(run)? {
        let task = task?;
        if !ids.contains(&task.id) {
            continue;
        }
        for file in task.files.iter().chain(&task.held_out) {
            let id = store.put(&source.get(&file.id)?)?;
            if id != file.id {
                return Err(RunError::BadInput(format!(
                    "{}: the content of {} does not match its digest",
                    TASKS.path(run).display(),
                    file.name
                )));
            }
        }
        tasks.push(task);
    }
    Ok(tasks)
}

/// Ids of the tasks in the test split of a dataset.
fn test_ids(dataset: &Path) -> Result<HashSet<Digest>, RunError> {
    let wrong = |error: DatasetError| {
        let run = dataset.parent().unwrap_or(dataset);
        RunError::BadInput(format!(
            "{error}; run `{}` to make the dataset",
            stage_command(run, "synthesize")
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
