//! Trajectories as notebooks (nbformat 4.5): the one writer, for exports, reports and upstream's `Cells/`.
//!
//! What people and models said stands in raw cells: Markdown of a model's own could load pictures from
//! anywhere. Of rich outputs plain text and PNG or JPEG pictures are kept, for the same reason.

use std::collections::BTreeMap;

use pybench::agent::{Act, Format, Part, Said, System, Talk, Unsayable, observation_text};
use pybench::interpreter::{Observation, Output};
use pybench::text::cut;
use pybench::trajectory::{Message, Role, Trajectory};
use serde_json::{Map, Value, json};

/// Most characters of an output or of words.
const MOST: usize = 64 << 10;
/// Largest picture in base64, bytes.
const MOST_PICTURE: usize = 8 << 20;
/// Makes random state what it was in the session.
const SETUP: &str = include_str!("setup.py");
/// What a bundle shows where nothing of it is kept.
const NOT_TEXT: &str = "[not text]";

/// How words and outputs stand in a notebook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Words in raw cells, outputs with their types.
    Typed,
    /// As upstream has it: words in Markdown cells under their role, outputs as the agent read them.
    Upstream,
}

/// A notebook under way.
pub struct Notebook {
    style: Style,
    cells: Vec<Value>,
    executed: u64,
}

impl Notebook {
    /// An empty one.
    pub fn new(style: Style) -> Self {
        Self {
            style,
            cells: Vec::new(),
            executed: 0,
        }
    }

    /// A trajectory: what was said, cells with what they did.
    pub fn of(trajectory: &Trajectory, style: Style) -> Self {
        let mut notebook = Self::new(style);
        let opening = trajectory.messages.iter();
        for message in opening.take_while(|m| m.role != Role::Assistant) {
            notebook.say(message.role, &message.content);
        }
        for turn in &trajectory.turns {
            notebook.say(Role::Assistant, &turn.reply);
            for (cell, seen) in turn.ran() {
                if let Some(cell) = cell {
                    notebook.run(cell, seen);
                }
            }
        }
        // Trajectories of other systems have messages alone.
        if trajectory.turns.is_empty() {
            let said = trajectory.messages.iter();
            let said = said.skip_while(|m| m.role != Role::Assistant);
            said.for_each(|message| notebook.say(message.role, &message.content));
        }
        notebook
    }

    /// The same of a trajectory that is to run again: its random state comes first.
    pub fn runnable(trajectory: &Trajectory) -> Self {
        let mut notebook = Self::new(Style::Typed);
        notebook.set_up(trajectory);
        notebook
            .cells
            .extend(Self::of(trajectory, Style::Typed).cells);
        notebook
    }

    /// A conversation of which only messages are known; what cells did is text.
    ///
    /// # Errors
    /// A message that breaks the format.
    pub fn of_messages(messages: &[Message], format: &dyn Format) -> Result<Self, Unsayable> {
        let mut notebook = Self::new(Style::Typed);
        let mut silent = std::collections::VecDeque::new();
        for part in Talk::read(messages, format)?.parts {
            match part {
                Part::System(System::Own) => notebook.say(Role::System, format.system()),
                Part::System(System::Other(text)) => notebook.say(Role::System, &text),
                Part::User(text) => notebook.say(Role::User, &text),
                Part::Heard(text) => match silent.pop_front() {
                    Some(place) => notebook.answer(place, &text),
                    None => notebook.say(Role::Tool, &text),
                },
                Part::Reply(Said { thought, act }) => {
                    silent.clear();
                    notebook.say(Role::Assistant, &thought);
                    match act {
                        Act::Cells(cells) => {
                            for cell in cells {
                                silent.push_back(notebook.cells.len());
                                notebook.run(&cell, None);
                            }
                        }
                        Act::Answer(answer) => notebook.say(Role::Assistant, &answer),
                        Act::Words => {}
                    }
                }
            }
        }
        Ok(notebook)
    }

    /// The notebook; `about` is kept in its metadata.
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

    fn say(&mut self, role: Role, text: &str) {
        let (text, role) = (cut(text, MOST), role.name());
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

    /// A code cell. Its source is whole: what is cut does not run.
    fn run(&mut self, source: &str, seen: Option<&Observation>) {
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
        // Such a cell ends otherwise the next time.
        if let Some(stopped) = seen.and_then(|seen| seen.stopped) {
            metadata = json!({"pybench": {"stopped": stopped}});
        }
        self.cells.push(json!({
            "cell_type": "code", "execution_count": count, "metadata": metadata,
            "source": self.source(source), "outputs": outputs,
        }));
    }

    /// Upstream writes lists of one text, and its readers take the first.
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
            // It says how long its dictionary took to load.
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
    json!({"output_type": "stream", "name": name, "text": cut(text, MOST)})
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
        let traceback = cut(&error.traceback, MOST);
        let traceback: Vec<_> = traceback.lines().map(str::to_owned).collect();
        outputs.push(json!({
            "output_type": "error", "ename": cut(&error.ename, 200),
            "evalue": cut(&error.evalue, MOST), "traceback": traceback,
        }));
    }
    outputs
}

/// Text and pictures of a bundle; HTML and scripts of a hostile one are left out.
fn bundle(data: &BTreeMap<String, String>) -> Value {
    let mut kept = Map::new();
    let text = data.get("text/plain").map_or(NOT_TEXT, String::as_str);
    kept.insert("text/plain".to_owned(), json!(cut(text, MOST)));
    for kind in ["image/png", "image/jpeg"] {
        if let Some(picture) = data
            .get(kind)
            .filter(|picture| picture.len() <= MOST_PICTURE)
        {
            kept.insert(kind.to_owned(), json!(picture));
        }
    }
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use pybench::agent::{CodeActFormat, ToolsFormat};

    use super::*;

    #[test]
    fn rows_become_cells_with_what_they_printed() {
        let messages = [
            Message::new(Role::User, "Do it."),
            Message::new(
                Role::Assistant,
                ToolsFormat
                    .write_steps("I look.", &["a".into(), "b".into()])
                    .unwrap(),
            ),
            ToolsFormat.write_heard("1\n"),
            ToolsFormat.write_heard("2\n"),
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
    fn scripts_of_a_bundle_are_left_out() {
        let hostile = [("text/html", "<script>"), ("application/javascript", "x")];
        let data = hostile.map(|(kind, text)| (kind.to_owned(), text.to_owned()));
        assert_eq!(bundle(&data.into()), json!({"text/plain": NOT_TEXT}));
    }
}
