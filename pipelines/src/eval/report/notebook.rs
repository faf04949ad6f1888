//! A trajectory as a notebook (nbformat 4.5). What a model said stands in raw cells: Markdown of its
//! own could load pictures from anywhere.

use pybench::interpreter::{Observation, Output};
use pybench::trajectory::{Role, Trajectory};
use serde_json::{Value, json};

use crate::eval::record::{Attempt, cut};

/// Most characters of a cell or an output.
const MOST: usize = 64 << 10;

/// The notebook as text.
pub(super) fn notebook(attempt: &Attempt, trajectory: &Trajectory) -> String {
    let mut cells = Vec::new();
    let mut add = |mut cell: Value| {
        cell["id"] = json!(format!("cell-{}", cells.len()));
        cells.push(cell);
    };
    let asked = trajectory.messages.iter();
    for message in asked.take_while(|m| m.role != Role::Assistant) {
        add(raw(&message.content));
    }
    for turn in &trajectory.turns {
        add(raw(&turn.reply));
        if let Some(cell) = &turn.cell {
            add(code(cell, turn.observation.as_ref()));
        }
    }
    // Trajectories of other systems have messages alone.
    if trajectory.turns.is_empty() {
        let said = trajectory.messages.iter();
        let said = said.skip_while(|m| m.role != Role::Assistant);
        said.for_each(|message| add(raw(&message.content)));
    }
    let about = json!({
        "agent": attempt.agent, "suite": attempt.suite, "task": attempt.task, "seed": attempt.seed,
    });
    let whole = json!({
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "pybench": about,
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    });
    format!("{whole:#}\n")
}

fn raw(text: &str) -> Value {
    json!({"cell_type": "raw", "metadata": {}, "source": cut(text, MOST)})
}

fn code(source: &str, observation: Option<&Observation>) -> Value {
    let outputs: Vec<Value> = observation.map(outputs).unwrap_or_default();
    json!({
        "cell_type": "code", "execution_count": null, "metadata": {},
        "source": cut(source, MOST), "outputs": outputs,
    })
}

/// Text only: other types of a hostile bundle (HTML, JavaScript) are left out.
fn outputs(observation: &Observation) -> Vec<Value> {
    let stream = |name: &str, text: &str| json!({"output_type": "stream", "name": name, "text": cut(text, MOST)});
    let mut outputs = Vec::new();
    for output in &observation.outputs {
        match output {
            Output::Stream { name, text } => {
                let name = if name == "stderr" { "stderr" } else { "stdout" };
                outputs.push(stream(name, text));
            }
            Output::Result { data } | Output::Display { data } => {
                let text = data.get("text/plain").map_or("[not text]", String::as_str);
                outputs.push(stream("stdout", text));
            }
            Output::Chart { .. } => {}
        }
    }
    if let Some(error) = &observation.error {
        let traceback: Vec<_> = cut(&error.traceback, MOST)
            .lines()
            .map(str::to_owned)
            .collect();
        outputs.push(json!({
            "output_type": "error", "ename": cut(&error.ename, 200),
            "evalue": cut(&error.evalue, MOST), "traceback": traceback,
        }));
    }
    outputs
}
