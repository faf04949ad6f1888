//! The held-out tasks of a run of the pipeline: those of its dataset's test split.

use std::collections::HashSet;
use std::path::Path;

use polars::prelude::{ParquetReader, SerReader};
use pybench::id::Digest;
use pybench::run::{ContentStore, RunError};
use pybench::task::Task;

/// Largest file of tasks, bytes.
const MOST_TASKS: u64 = 1 << 30;

/// Tasks of the test split of the run folder, in the order of the run; their files are copied to `store`.
///
/// # Errors
/// [`RunError::BadInput`] where there is no such run or no dataset in it.
pub(super) fn held_out(run: &Path, store: &ContentStore) -> Result<Vec<Task>, RunError> {
    let ids = test_ids(&run.join("dataset/data"))?;
    let path = run.join("tasks.jsonl");
    let wrong =
        |error: &dyn std::fmt::Display| RunError::BadInput(format!("{}: {error}", path.display()));
    let size = std::fs::metadata(&path)
        .map_err(|error| wrong(&error))?
        .len();
    if size > MOST_TASKS {
        return Err(wrong(&"larger than any file of tasks"));
    }
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(&error))?;
    let there = ContentStore::open(&run.join("files"))?;
    let mut tasks = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let task: Task = serde_json::from_str(line).map_err(|error| wrong(&error))?;
        if !ids.contains(task.id.as_str()) {
            continue;
        }
        for file in task.files.iter().chain(&task.held_out) {
            let id = store.put(&there.get(&file.id)?)?;
            if id != file.id {
                return Err(wrong(&format!(
                    "the file {} is not what its digest says",
                    file.name
                )));
            }
        }
        tasks.push(task);
    }
    Ok(tasks)
}

/// Ids of the tasks in `test-*.parquet`.
fn test_ids(folder: &Path) -> Result<HashSet<String>, RunError> {
    let wrong = |error: &dyn std::fmt::Display| {
        RunError::BadInput(format!(
            "{}: {error}: `pybench synthesize` makes the dataset",
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
