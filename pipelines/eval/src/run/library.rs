//! Reads the held-out library tasks of a pipeline run: the test split of its dataset.

use std::collections::HashSet;
use std::path::Path;

use polars::prelude::{ParquetReader, SerReader};
use pybench_run::{ContentStore, RunError};
use pybench_types::id::Digest;
use pybench_types::task::Task;

/// Maximum size of the file of tasks, in bytes.
const MAX_TASKS: u64 = 1 << 30;

/// Reads the tasks of the test split of a run folder, in the order of the run, and copies their files to
/// `store`.
///
/// # Errors
/// [`RunError::BadInput`] if the run or its dataset does not exist or is invalid.
pub(super) fn held_out(run: &Path, store: &ContentStore) -> Result<Vec<Task>, RunError> {
    let ids = test_ids(&run.join("dataset/data"))?;
    let path = run.join("tasks.jsonl");
    let wrong =
        |error: &dyn std::fmt::Display| RunError::BadInput(format!("{}: {error}", path.display()));
    let size = std::fs::metadata(&path)
        .map_err(|error| wrong(&error))?
        .len();
    if size > MAX_TASKS {
        return Err(wrong(&"the file is larger than 1 GiB"));
    }
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(&error))?;
    let source = ContentStore::open(&run.join("files"))?;
    let mut tasks = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let task: Task = serde_json::from_str(line).map_err(|error| wrong(&error))?;
        if !ids.contains(task.id.as_str()) {
            continue;
        }
        for file in task.files.iter().chain(&task.held_out) {
            let id = store.put(&source.get(&file.id)?)?;
            if id != file.id {
                return Err(wrong(&format!(
                    "the content of {} does not match its digest",
                    file.name
                )));
            }
        }
        tasks.push(task);
    }
    Ok(tasks)
}

/// Ids of the tasks in the shards `test-*.parquet`.
fn test_ids(folder: &Path) -> Result<HashSet<String>, RunError> {
    let wrong = |error: &dyn std::fmt::Display| {
        RunError::BadInput(format!(
            "{}: {error}; run `pybench synthesize` to make the dataset",
            folder.display()
        ))
    };
    let mut ids = HashSet::new();
    for entry in std::fs::read_dir(folder).map_err(|error| wrong(&error))? {
        let path = entry.map_err(|error| wrong(&error))?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if !(name.starts_with("test-") && name.ends_with(".parquet")) {
            continue;
        }
        let file = std::fs::File::open(&path).map_err(|error| wrong(&error))?;
        let columns = Some(vec!["task_id".to_owned()]);
        let frame = ParquetReader::new(file).with_columns(columns).finish();
        let frame = frame.map_err(|error| wrong(&error))?;
        let column = frame
            .column("task_id")
            .and_then(|column| column.str().cloned());
        let column = column.map_err(|error| wrong(&error))?;
        let found = (0..column.len()).filter_map(|row| column.get(row).map(str::to_owned));
        ids.extend(found.filter(|id| Digest::try_from(id.clone()).is_ok()));
    }
    Ok(ids)
}
