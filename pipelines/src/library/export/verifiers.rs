//! A taskset of verifiers as a Python package: prompts and input files, and a client of the two services
//! that run cells and score. The package holds no reference and no check: the service makes the task anew.
//! What is the same for every export lies in `pipelines/export/verifiers`.

use pybench::agent::{Format, ToolsFormat};
use pybench::run::{ContentStore, RunError};
use pybench::task::Task;
use serde_json::{Value, json};

use super::proof::Proven;
use super::tree::Tree;
use crate::library::validate;

/// Path in the package → text.
const PACKAGE: [(&str, &str); 6] = [
    (
        "pyproject.toml",
        include_str!("../../../export/verifiers/pyproject.toml"),
    ),
    (
        "README.md",
        include_str!("../../../export/verifiers/README.md"),
    ),
    (
        "pybench_library/__init__.py",
        include_str!("../../../export/verifiers/pybench_library/__init__.py"),
    ),
    (
        "pybench_library/services.py",
        include_str!("../../../export/verifiers/pybench_library/services.py"),
    ),
    (
        "pybench_library/taskset.py",
        include_str!("../../../export/verifiers/pybench_library/taskset.py"),
    ),
    (
        "pybench_library/tool.py",
        include_str!("../../../export/verifiers/pybench_library/tool.py"),
    ),
];

/// Writes the package of all tasks.
pub(super) fn write(tree: &Tree, proven: &[Proven], store: &ContentStore) -> Result<(), RunError> {
    for (path, text) in PACKAGE {
        tree.file(path, text)?;
    }
    let mut rows = String::new();
    for one in proven {
        rows.push_str(&serde_json::to_string(&row(one))?);
        rows.push('\n');
        for file in &one.task.files {
            let path = format!("pybench_library/files/{}", file.id);
            tree.file(&path, store.get(&file.id)?)?;
        }
    }
    tree.file("pybench_library/tasks.jsonl", rows)
}

fn row(proven: &Proven) -> Value {
    let task = &proven.task;
    let files = task.files.iter();
    let files = files.map(|file| json!({"path": format!("data/{}", file.name), "id": file.id}));
    json!({
        "name": proven.key.to_string(),
        "task": proven.key,
        "id": task.id,
        "category": validate::folder(task.category),
        "keyword": task.keyword,
        "system_prompt": ToolsFormat.system(),
        "prompt": prompt(task),
        "files": files.collect::<Vec<_>>(),
    })
}

/// The notice of files that agents of pybench get, and the query.
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
