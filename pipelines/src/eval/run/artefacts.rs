//! What upstream's own runner leaves: `trajectory.jsonl`, `output/`, `Cells/<index>.ipynb`.

use std::path::{Component, Path};

use pybench::agent::observation_text;
use pybench::run::RunError;
use pybench::trajectory::{Role, Trajectory};
use serde_json::{Map, Value, json};

use super::questions::Question;
use super::{Setup, Try};

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
        let notebook = serde_json::to_vec_pretty(&notebook(trajectory))?;
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

/// Prompts and thoughts as text, cells with what they printed.
pub fn notebook(trajectory: &Trajectory) -> Value {
    let text = |role: &str, text: &str| json!({"cell_type": "markdown", "metadata": {}, "source": format!("<|{role}|>\n\n{text}")});
    let opening = trajectory
        .messages
        .iter()
        .take_while(|message| message.role != Role::Assistant);
    let mut cells: Vec<Value> = opening
        .map(|message| match message.role {
            Role::System => text("system", &message.content),
            _ => text("user", &message.content),
        })
        .collect();
    for turn in &trajectory.turns {
        cells.push(text("assistant", &turn.reply));
        if let (Some(cell), Some(seen)) = (&turn.cell, &turn.observation) {
            let output = json!({"name": "stdout", "output_type": "stream", "text": [observation_text(seen)]});
            cells.push(json!({"cell_type": "code", "execution_count": null, "metadata": {}, "outputs": [output], "source": [cell]}));
        }
    }
    for (number, cell) in cells.iter_mut().enumerate() {
        cell["id"] = json!(format!("cell-{number}"));
    }
    json!({
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    })
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let wrap = || RunError::io(path.display().to_string());
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(wrap())?;
    }
    std::fs::write(path, bytes).map_err(wrap())
}
