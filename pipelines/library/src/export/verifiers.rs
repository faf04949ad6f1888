//! Writes a verifiers taskset as a Python package: prompts, input files, and a client of the two services that
//! run cells and score. The package contains no references and no checks; the reward service regenerates
//! the task, or has it in a folder of its own. Files that are the same for every export are in `pipelines/library/export/verifiers`.

use std::path::Path;

use pybench_agent::{Format, ToolsFormat};
use pybench_run::{ContentStore, RunError};
use pybench_types::task::Task;
use serde_json::{Value, json};

use super::export_check::CheckedTask;
use super::harbor::SolvedTask;
use super::stored_tasks::StoredTasks;
use super::tree::Tree;
use crate::TaskKey;

/// The static files: path in the package and text.
const PACKAGE: [(&str, &str); 6] = [
    (
        "pyproject.toml",
        include_str!("../../export/verifiers/pyproject.toml"),
    ),
    (
        "README.md",
        include_str!("../../export/verifiers/README.md"),
    ),
    (
        "pybench_library/__init__.py",
        include_str!("../../export/verifiers/pybench_library/__init__.py"),
    ),
    (
        "pybench_library/services.py",
        include_str!("../../export/verifiers/pybench_library/services.py"),
    ),
    (
        "pybench_library/taskset.py",
        include_str!("../../export/verifiers/pybench_library/taskset.py"),
    ),
    (
        "pybench_library/tool.py",
        include_str!("../../export/verifiers/pybench_library/tool.py"),
    ),
];

/// Writes the package with all tasks.
pub(super) fn write(
    tree: &Tree,
    checked: &[CheckedTask],
    store: &ContentStore,
) -> Result<(), RunError> {
    let tasks = checked.iter().map(|one| PackagedTask {
        name: one.key.to_string(),
        key: Some(&one.key),
        task: &one.task,
    });
    write_package(tree, "", tasks, store)
}

/// Writes tasks that the reward service cannot make again to `out`, which must not exist or must be empty: `package`
/// for the trainer, and `rewards` with references and checks for `serve-rewards --tasks`.
///
/// # Errors
/// [`RunError::Conflict`] if `out` holds something; a file cannot be read or written.
pub fn write_taskset(
    out: &Path,
    tasks: &[SolvedTask],
    store: &ContentStore,
) -> Result<(), RunError> {
    let tree = Tree::create(out)?;
    let packaged = tasks.iter().map(|one| PackagedTask {
        name: one.name.clone(),
        key: None,
        task: &one.task,
    });
    write_package(&tree, "package/", packaged, store)?;
    StoredTasks::write(&tree, "rewards/", tasks.iter().map(|one| &one.task), store)?;
    tree.finish()
}

/// A task in a package.
struct PackagedTask<'a> {
    name: String,
    /// What the reward service makes the task from; `None` if it has the task itself.
    key: Option<&'a TaskKey>,
    task: &'a Task,
}

fn write_package<'a>(
    tree: &Tree,
    folder: &str,
    tasks: impl Iterator<Item = PackagedTask<'a>>,
    store: &ContentStore,
) -> Result<(), RunError> {
    for (path, text) in PACKAGE {
        tree.file(&format!("{folder}{path}"), text)?;
    }
    let mut rows = String::new();
    for one in tasks {
        rows.push_str(&serde_json::to_string(&row(&one))?);
        rows.push('\n');
        for file in &one.task.files {
            let path = format!("{folder}pybench_library/files/{}", file.id);
            tree.file(&path, store.get(&file.id)?)?;
        }
    }
    tree.file(&format!("{folder}pybench_library/tasks.jsonl"), rows)
}

fn row(packaged: &PackagedTask<'_>) -> Value {
    let task = packaged.task;
    let files = task.files.iter();
    let files = files.map(|file| json!({"path": format!("data/{}", file.name), "id": file.id}));
    json!({
        "name": packaged.name,
        "task": packaged.key,
        "id": task.id,
        "seed": packaged.key.map_or_else(|| task.id.seed(), |key| key.seed),
        "category": task.category.name(),
        "keyword": task.keyword,
        "system_prompt": ToolsFormat.system(),
        "prompt": prompt(task),
        "files": files.collect::<Vec<_>>(),
    })
}

/// The prompt that pybench's own agents get: the notice about uploaded files and the query.
fn prompt(task: &Task) -> String {
    let files: Vec<_> = task
        .files
        .iter()
        .map(|f| format!("./data/{}", f.name))
        .collect();
    match files.is_empty() {
        true => task.query.clone(),
        false => format!(
            "[INFO]The data is uploaded to {}\n\n{}",
            files.join(","),
            task.query
        ),
    }
}
