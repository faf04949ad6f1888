//! Writes the files that upstream's own runner writes: `trajectory.jsonl`, `output/` and
//! `Cells/<index>.ipynb`.

use std::path::{Component, Path};

use pybench_run::RunError;
use pybench_types::trajectory::Trajectory;
use serde_json::{Map, Value, json};

use super::{AgentAttempt, Setup};
use crate::suite::EvalTask;
use pybench_agent::notebook::{Notebook, Style};

/// Name of the file of trajectories.
pub const TRAJECTORIES: &str = "trajectory.jsonl";

/// Writes the artifacts of one agent below `root`, in task order. Only PyBench has some.
pub(super) fn write<'a>(
    root: &Path,
    setup: &Setup,
    tasks: &[EvalTask],
    attempts: impl Iterator<Item = &'a AgentAttempt>,
) -> Result<(), RunError> {
    let mut lines = String::new();
    let store = setup.folder.store();
    for attempt in attempts {
        let eval_task = &tasks[attempt.task];
        let suite = setup.suites.iter().find(|s| s.name() == eval_task.suite);
        let row = suite.and_then(|suite| suite.upstream_row(&eval_task.name));
        let (Some(row), Ok(trajectory)) = (row, &attempt.result) else {
            continue;
        };
        let index = &eval_task.name;
        lines += &line(trajectory, row).to_string();
        lines.push('\n');
        for file in &trajectory.outputs {
            let plain = |part| matches!(part, Component::Normal(_));
            if Path::new(&file.path).components().all(plain) {
                write_file(&root.join(&file.path), &store.get(&file.id)?)?;
            }
        }
        let notebook =
            serde_json::to_vec_pretty(&Notebook::of(trajectory, Style::Upstream).end(json!({})))?;
        write_file(
            &root.join("Cells").join(format!("{index}.ipynb")),
            &notebook,
        )?;
    }
    write_file(&root.join(TRAJECTORIES), lines.as_bytes())
}

/// Copies the artifacts of an agent to upstream's `--output_path`: the trajectories to that file, `output/` and
/// `Cells/` next to it.
///
/// # Errors
/// A file cannot be read or written.
pub fn copy(root: &Path, path: &Path) -> Result<(), RunError> {
    let target = path.parent().unwrap_or(Path::new("."));
    let read = |from: &Path| std::fs::read(from).map_err(RunError::io(from.display().to_string()));
    write_file(path, &read(&root.join(TRAJECTORIES))?)?;
    for name in ["output", "Cells"] {
        let mut folders = vec![root.join(name)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let from = entry.path();
                let below = from.strip_prefix(root).unwrap_or(&from);
                match from.is_dir() {
                    true => folders.push(from),
                    false => write_file(&target.join(below), &read(&from)?)?,
                }
            }
        }
    }
    Ok(())
}

/// A line of `trajectory.jsonl`: `messages`, then the fields of `task.json`.
fn line(trajectory: &Trajectory, row: Value) -> Value {
    let mut line = Map::new();
    line.insert("messages".to_owned(), json!(trajectory.messages));
    if let Value::Object(row) = row {
        line.extend(row);
    }
    Value::Object(line)
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let wrap = || RunError::io(path.display().to_string());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(wrap())?;
    }
    std::fs::write(path, bytes).map_err(wrap())
}
