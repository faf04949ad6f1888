//! Writes trajectories as notebooks (nbformat 4.5), for exports, reports and the `Cells/` folder of PyBench.
//!
//! Messages become raw cells, because Markdown written by a model could load pictures from anywhere. For the same
//! reason only plain text and PNG or JPEG pictures of rich outputs are kept.

use std::collections::BTreeMap;

use crate::{Act, Dialogue, DialogueMessage, Format, Part, System, Unsupported, observation_text};
use pybench_types::observation::{Observation, Output};
use pybench_types::text::cut;
use pybench_types::trajectory::{Message, Role, Trajectory};
use serde_json::{Map, Value, json};

/// Maximum length of an output or a message, characters.
const MAX_TEXT: usize = 64 << 10;
/// Maximum size of a base64-encoded picture, bytes.
const MAX_PICTURE: usize = 8 << 20;
/// Code that restores the random state of the session.
const SETUP: &str = include_str!("setup.py");
/// Text of a bundle without plain text.
const NOT_TEXT: &str = "[not text]";

/// How messages and outputs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Messages in raw cells, outputs with their types.
    Typed,
    /// As in PyBench: messages in Markdown cells under their role, outputs as the agent read them.
    Upstream,
}

/// A notebook that is being written.
pub struct Notebook {
    style: Style,
    cells: Vec<Value>,
    executed: u64,
}

impl Notebook {
    /// An empty notebook.
    pub fn new(style: Style) -> Self {
        Self {
            style,
            cells: Vec::new(),
            executed: 0,
        }
    }

    /// The notebook of a trajectory: messages, and cells with their outputs.
    pub fn of(trajectory: &Trajectory, style: Style) -> Self {
        let mut notebook = Self::new(style);
        let opening = trajectory.messages.iter();
        for message in opening.take_while(|m| m.role != Role::Assistant) {
            notebook.say(message.role, &message.content);
        }
        for turn in &trajectory.turns {
            notebook.say(Role::Assistant, &turn.reply);
            for (cell, seen) in turn.cell_runs() {
                if let Some(cell) = cell {
                    notebook.run(cell, seen);
                }
            }
        }
        // Trajectories of other systems have messages but no turns.
        if trajectory.turns.is_empty() {
            let said = trajectory.messages.iter();
            let said = said.skip_while(|m| m.role != Role::Assistant);
            said.for_each(|message| notebook.say(message.role, &message.content));
        }
        notebook
    }

    /// The notebook of a trajectory, with a first cell that restores the random state so that it can be run.
    pub fn runnable(trajectory: &Trajectory) -> Self {
        let mut notebook = Self::new(Style::Typed);
        notebook.set_up(trajectory);
        notebook
            .cells
            .extend(Self::of(trajectory, Style::Typed).cells);
        notebook
    }

    /// The notebook of a conversation without turns; outputs of cells are plain text.
    ///
    /// # Errors
    /// A message that violates the format.
    pub fn of_messages(messages: &[Message], format: &dyn Format) -> Result<Self, Unsupported> {
        let mut notebook = Self::new(Style::Typed);
        let mut without_output = std::collections::VecDeque::new();
        for part in Dialogue::read(messages, format)?.parts {
            match part {
                Part::System(System::Own) => notebook.say(Role::System, format.system()),
                Part::System(System::Other(text)) => notebook.say(Role::System, &text),
                Part::User(text) => notebook.say(Role::User, &text),
                Part::Observation(text) => match without_output.pop_front() {
                    Some(place) => notebook.answer(place, &text),
                    None => notebook.say(Role::Tool, &text),
                },
                Part::Reply(DialogueMessage { thought, act }) => {
                    without_output.clear();
                    notebook.say(Role::Assistant, &thought);
                    match act {
                        Act::Cells(cells) => {
                            for cell in cells {
                                without_output.push_back(notebook.cells.len());
                                notebook.run(&cell, None);
                            }
                        }
                        Act::Answer(answer) => notebook.say(Role::Assistant, &answer),
                        Act::Text => {}
                    }
                }
            }
        }
        Ok(notebook)
    }

    /// The finished notebook as JSON, with `about` in its metadata.
    pub fn end(mut self, about: Value) -> Value {
        for (number, cell) in self.cells.iter_mut().enumerate() {
            cell["id"] = json!(format!("cell-{number}"));
        }
        json!({
            "cells": self.cells,
            "metadata": {
                "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
                "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
                "pybench": about,
            },
            "nbformat": 4,
            "nbformat_minor": 5,
        })
    }

    /// Adds a message; nothing if it is empty.
    pub fn say(&mut self, role: Role, text: &str) {
        let (text, role) = (cut(text, MAX_TEXT), role.name());
        if text.is_empty() {
            return;
        }
        self.cells.push(match self.style {
            Style::Typed => {
                json!({"cell_type": "raw", "metadata": {"pybench": {"role": role}}, "source": text})
            }
            Style::Upstream => {
                let source = format!("<|{role}|>\n\n{text}");
                json!({"cell_type": "markdown", "metadata": {}, "source": source})
            }
        });
    }

    /// Adds a code cell. The source is never truncated, because truncated code does not run.
    pub fn run(&mut self, source: &str, seen: Option<&Observation>) {
        self.executed += 1;
        let outputs = match (self.style, seen) {
            (_, None) => Vec::new(),
            (Style::Typed, Some(seen)) => outputs(seen, self.executed),
            (Style::Upstream, Some(seen)) => {
                let mut output = stream("stdout", &observation_text(seen));
                output["text"] = json!([output["text"].take()]);
                vec![output]
            }
        };
        let count = (self.style == Style::Typed && seen.is_some()).then_some(self.executed);
        let mut metadata = json!({});
        // A stopped cell may end differently when it is run again.
        if let Some(stopped) = seen.and_then(|seen| seen.stopped) {
            metadata = json!({"pybench": {"stopped": stopped}});
        }
        self.cells.push(json!({
            "cell_type": "code", "execution_count": count, "metadata": metadata,
            "source": self.source(source), "outputs": outputs,
        }));
    }

    /// PyBench writes the source as a list with one text, and its readers take the first item.
    fn source(&self, text: &str) -> Value {
        match self.style {
            Style::Typed => json!(text),
            Style::Upstream => json!([text]),
        }
    }

    fn answer(&mut self, place: usize, text: &str) {
        if let Some(cell) = self.cells.get_mut(place) {
            cell["outputs"] = json!([stream("stdout", text)]);
        }
    }

    fn set_up(&mut self, trajectory: &Trajectory) {
        let mut source = SETUP.replace("SEED)", &format!("{})", trajectory.seed));
        let mut cells = trajectory.turns.iter().flat_map(|turn| turn.cells());
        if cells.any(|cell| cell.contains("jieba")) {
            // Otherwise jieba logs how long loading its dictionary took.
            source += "import jieba; jieba.setLogLevel(\"WARNING\")\n";
        }
        let metadata = json!({"tags": ["pybench-setup"], "jupyter": {"source_hidden": true}});
        self.cells.push(json!({
            "cell_type": "code", "execution_count": null, "metadata": metadata,
            "source": source, "outputs": [],
        }));
    }
}

fn stream(name: &str, text: &str) -> Value {
    json!({"output_type": "stream", "name": name, "text": cut(text, MAX_TEXT)})
}

fn outputs(seen: &Observation, count: u64) -> Vec<Value> {
    let mut outputs = Vec::new();
    for output in &seen.outputs {
        match output {
            Output::Stream { name, text } => {
                let name = if name == "stderr" { "stderr" } else { "stdout" };
                outputs.push(stream(name, text));
            }
            Output::Result { data } => outputs.push(json!({
                "output_type": "execute_result", "execution_count": count,
                "data": bundle(data), "metadata": {},
            })),
            Output::Display { data } => outputs.push(json!({
                "output_type": "display_data", "data": bundle(data), "metadata": {},
            })),
            Output::Chart { .. } => {}
        }
    }
    if let Some(error) = &seen.error {
        let traceback = cut(&error.traceback, MAX_TEXT);
        let traceback: Vec<_> = traceback.lines().map(str::to_owned).collect();
        outputs.push(json!({
            "output_type": "error", "ename": cut(&error.ename, 200),
            "evalue": cut(&error.evalue, MAX_TEXT), "traceback": traceback,
        }));
    }
    outputs
}

/// Text and pictures of a bundle, without HTML and scripts, which may be malicious.
fn bundle(data: &BTreeMap<String, String>) -> Value {
    let mut kept = Map::new();
    let text = data.get("text/plain").map_or(NOT_TEXT, String::as_str);
    kept.insert("text/plain".to_owned(), json!(cut(text, MAX_TEXT)));
    for kind in ["image/png", "image/jpeg"] {
        if let Some(picture) = data
            .get(kind)
            .filter(|picture| picture.len() <= MAX_PICTURE)
        {
            kept.insert(kind.to_owned(), json!(picture));
        }
    }
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use crate::{CodeActFormat, ToolsFormat};

    use super::*;

    #[test]
    fn messages_become_cells_with_their_output() {
        let messages = [
            Message::new(Role::User, "Do it."),
            Message::new(
                Role::Assistant,
                ToolsFormat
                    .write_steps("I look.", &["a".into(), "b".into()])
                    .unwrap(),
            ),
            ToolsFormat.write_observation("1\n"),
            ToolsFormat.write_observation("2\n"),
            Message::new(Role::Assistant, ToolsFormat.write_answer("done")),
        ];
        let book = Notebook::of_messages(&messages, &ToolsFormat).unwrap();
        let book = book.end(json!({}));
        let cells = book["cells"].as_array().unwrap();
        let kinds: Vec<_> = cells
            .iter()
            .map(|c| c["cell_type"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["raw", "raw", "code", "code", "raw"]);
        assert_eq!(cells[3]["outputs"][0]["text"], "2\n");
        assert_eq!(cells[4]["source"], "done");
        assert!(Notebook::of_messages(&messages, &CodeActFormat).is_err());
    }

    #[test]
    fn scripts_in_a_bundle_are_removed() {
        let hostile = [("text/html", "<script>"), ("application/javascript", "x")];
        let data = hostile.map(|(kind, text)| (kind.to_owned(), text.to_owned()));
        assert_eq!(bundle(&data.into()), json!({"text/plain": NOT_TEXT}));
    }
}
