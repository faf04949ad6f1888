//! Writes a verifiers taskset as a Python package: prompts, input files, and a client of the two services that
//! run cells and score. The package contains no references and no checks; the reward service regenerates
//! the task. Files that are the same for every export are in `pipelines/library/export/verifiers`.

use pybench_agent::{Format, ToolsFormat};
use pybench_run::{ContentStore, RunError};
use pybench_types::task::Task;
use serde_json::{Value, json};

use super::export_check::CheckedTask;
use super::tree::Tree;

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
    for (path, text) in PACKAGE {
        tree.file(path, text)?;
    }
    let mut rows = String::new();
    for one in checked {
        rows.push_str(&serde_json::to_string(&row(one))?);
        rows.push('\n');
        for file in &one.task.files {
            let path = format!("pybench_library/files/{}", file.id);
            tree.file(&path, store.get(&file.id)?)?;
        }
    }
    tree.file("pybench_library/tasks.jsonl", rows)
}

fn row(checked: &CheckedTask) -> Value {
    let task = &checked.task;
    let files = task.files.iter();
    let files = files.map(|file| json!({"path": format!("data/{}", file.name), "id": file.id}));
    json!({
        "name": checked.key.to_string(),
        "task": checked.key,
        "id": task.id,
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
