//! What upstream's own runner leaves: `trajectory.jsonl`, `output/`, `Cells/<index>.ipynb`.

use std::path::{Component, Path};

use pybench::run::RunError;
use pybench::trajectory::Trajectory;
use serde_json::{Map, Value, json};

use super::questions::Question;
use super::{Setup, Try};
use crate::notebook::{Notebook, Style};

/// Name of the file of trajectories.
pub const TRAJECTORIES: &str = "trajectory.jsonl";

/// Write them below `root` for tries of one agent, in the order of the tasks; library tasks have none.
pub(super) fn write<'a>(
    root: &Path,
    setup: &Setup,
    questions: &[Question],
    tries: impl Iterator<Item = &'a Try>,
) -> Result<(), RunError> {
    let mut lines = String::new();
    let store = setup.folder.store();
    for one in tries {
        let question = &questions[one.question];
        let (Some(index), Ok(trajectory)) = (question.index, &one.result) else {
            continue;
        };
        let row = setup
            .bench
            .as_ref()
            .and_then(|bench| bench.upstream.row(index));
        lines += &line(trajectory, serde_json::to_value(row)?).to_string();
        lines.push('\n');
        for file in &trajectory.outputs {
            let plain = |part| matches!(part, Component::Normal(_));
            if Path::new(&file.path).components().all(plain) {
                put(&root.join(&file.path), &store.get(&file.id)?)?;
            }
        }
        let notebook =
            serde_json::to_vec_pretty(&Notebook::of(trajectory, Style::Upstream).end(json!({})))?;
        put(
            &root.join("Cells").join(format!("{index}.ipynb")),
            &notebook,
        )?;
    }
    put(&root.join(TRAJECTORIES), lines.as_bytes())
}

/// Copy one agent's artefacts to where upstream's `--output_path` asks for them: the file there, `output/`
/// and `Cells/` beside it.
///
/// # Errors
/// What cannot be read or written.
pub fn copy(root: &Path, path: &Path) -> Result<(), RunError> {
    let beside = path.parent().unwrap_or(Path::new("."));
    let read = |from: &Path| std::fs::read(from).map_err(RunError::io(from.display().to_string()));
    put(path, &read(&root.join(TRAJECTORIES))?)?;
    for name in ["output", "Cells"] {
        let mut folders = vec![root.join(name)];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                let from = entry.path();
                let below = from.strip_prefix(root).unwrap_or(&from);
                match from.is_dir() {
                    true => folders.push(from),
                    false => put(&beside.join(below), &read(&from)?)?,
                }
            }
        }
    }
    Ok(())
}

/// `messages` first, then the fields of `task.json`.
fn line(trajectory: &Trajectory, row: Value) -> Value {
    let mut line = Map::new();
    line.insert("messages".to_owned(), json!(trajectory.messages));
    if let Value::Object(row) = row {
        line.extend(row);
    }
    Value::Object(line)
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let wrap = || RunError::io(path.display().to_string());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(wrap())?;
    }
    std::fs::write(path, bytes).map_err(wrap())
}
