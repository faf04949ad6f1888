//! Turns as people write them, and the replies that they become.

use pybench_agent::{Format, Parsed};
use pybench_llm::Reply;
use pybench_run::RunError;
use pybench_types::human_edit::TurnAuthor;
use pybench_types::trajectory::{Trajectory, Turn, Usage};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model_replies::ModelReplies;
use crate::view::prose;

/// A turn that a person wrote, a recorded one, or one of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct WrittenTurn {
    /// Number of the recorded turn, from 1, whose reply is sent as it is. Text and cells are not used then.
    pub(crate) recorded: Option<u32>,
    /// Id of a reply that a model wrote for an edit. Text and cells are not used then.
    pub(crate) model: Option<String>,
    /// What comes before the code; the final answer if there is no code.
    pub(crate) text: String,
    /// The cells, in order; none in the last turn.
    pub(crate) cells: Vec<String>,
}

/// A turn with the reply that it becomes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SentTurn {
    pub(crate) written: WrittenTurn,
    pub(crate) author: TurnAuthor,
    pub(crate) reply: Reply,
}

impl WrittenTurn {
    /// The recorded turn with this number, for a person to change.
    pub(crate) fn of(number: usize, turn: &Turn, format: &dyn Format) -> Self {
        let cells = format.parse(&turn.reply).cells();
        let cells: Vec<String> = cells.into_iter().filter_map(Result::ok).collect();
        let text = match format.parse(&turn.reply) {
            Parsed::Answer(answer) => answer.trim().to_owned(),
            _ => prose(&turn.reply, !cells.is_empty()).to_owned(),
        };
        Self {
            recorded: u32::try_from(number).ok(),
            model: None,
            text,
            cells,
        }
    }

    /// The turn with its reply in the message format of the recorded trajectory.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is no such turn or reply, or the format cannot express the reply.
    pub(crate) fn sent(
        self,
        recorded: &Trajectory,
        format: &dyn Format,
        replies: &ModelReplies,
    ) -> Result<SentTurn, RunError> {
        let (author, reply) = match (self.recorded, &self.model) {
            (None, Some(id)) => {
                let kept = replies.get(id)?;
                (TurnAuthor::model(&kept.model), kept.reply)
            }
            (Some(number), None) => {
                let content = recorded_reply(recorded, number)?;
                (TurnAuthor::recorded(), complete(content))
            }
            (None, None) => {
                let content = self.write(format).map_err(RunError::BadInput)?;
                (TurnAuthor::human(), complete(content))
            }
            (Some(_), Some(_)) => {
                let text = "a turn has either `recorded` or `model`";
                return Err(RunError::BadInput(text.to_owned()));
            }
        };
        Ok(SentTurn {
            written: self,
            author,
            reply,
        })
    }

    fn write(&self, format: &dyn Format) -> Result<String, String> {
        if self.cells.iter().any(|cell| cell.trim().is_empty()) {
            return Err("a cell is empty; remove it, or write code".to_owned());
        }
        if self.cells.is_empty() && self.text.trim().is_empty() {
            return Err("the answer is empty".to_owned());
        }
        let content = match self.cells.as_slice() {
            [] => Some(format.write_answer(self.text.trim())),
            cells => format.write_steps(self.text.trim_end(), cells),
        };
        let content = content.ok_or_else(|| {
            let name = format.name();
            format!("the message format `{name}` has one cell in each turn; write the others as further turns")
        })?;
        match self.is_read_from(&format.truncate(&content, true), format) {
            true => Ok(content),
            false => Err(format!(
                "the message format `{}` would read other code from this turn than you wrote; remove what marks code in \
                 this format (such as ``` or <execute>) from the text and the code",
                format.name()
            )),
        }
    }

    /// Whether the format reads these cells, or an answer, from a reply.
    fn is_read_from(&self, reply: &str, format: &dyn Format) -> bool {
        let parsed = format.parse(reply);
        if self.cells.is_empty() {
            return matches!(parsed, Parsed::Answer(_));
        }
        // In a format without thoughts they are comments before the code.
        let is_same = |read: &str, cell: &str| match format.has_thoughts() {
            true => read == cell,
            false => read.ends_with(cell),
        };
        let read = parsed.cells();
        let pairs = read.iter().zip(&self.cells);
        let mut same = pairs.map(|(read, cell)| {
            let read = read.as_ref().map_or("", |read| read.trim());
            is_same(read, cell.trim())
        });
        read.len() == self.cells.len() && same.all(|same| same)
    }
}

fn complete(content: String) -> Reply {
    Reply {
        content,
        usage: Usage::default(),
        // The reply is complete: nothing must be appended.
        truncated: true,
        repetition: false,
    }
}

fn recorded_reply(recorded: &Trajectory, number: u32) -> Result<String, RunError> {
    let at = (number as usize).checked_sub(1);
    let turn = at.and_then(|at| recorded.turns.get(at));
    let reply = turn.map(|turn| turn.reply.clone());
    reply.ok_or_else(|| {
        let count = recorded.turns.len();
        RunError::BadInput(format!(
            "`recorded` is {number}, and the recorded trajectory has turns 1 to {count}"
        ))
    })
}

#[cfg(test)]
mod tests {
    use pybench_agent::{format, format_named};
    use pybench_run::FormatChoice;

    use super::*;

    fn written(text: &str, cells: &[&str]) -> WrittenTurn {
        WrittenTurn {
            recorded: None,
            model: None,
            text: text.to_owned(),
            cells: cells.iter().map(|cell| (*cell).to_owned()).collect(),
        }
    }

    fn turn(reply: String) -> Turn {
        Turn {
            reply,
            cell: None,
            observation: None,
            more: Vec::new(),
            usage: Usage::default(),
        }
    }

    #[test]
    fn each_format_reads_back_what_was_written() {
        for choice in FormatChoice::ALL {
            let format = format(choice);
            for (text, cells) in [("I look.", &["x = 1\nprint(x)"][..]), ("It is 1.", &[])] {
                let reply = written(text, cells).write(format).unwrap();
                let shown = WrittenTurn::of(1, &turn(reply), format);
                let expected = match format.has_thoughts() || cells.is_empty() {
                    true => written(text, cells),
                    false => written("", &["# I look.\nx = 1\nprint(x)"]),
                };
                assert_eq!(
                    (&shown.text, &shown.cells),
                    (&expected.text, &expected.cells),
                    "{}",
                    format.name()
                );
            }
        }
    }

    #[test]
    fn what_a_format_cannot_hold_is_refused() {
        let pybench = format_named("pybench").unwrap();
        for (turn, expected) in [
            (written("Look.", &["a", "b"]), "one cell in each turn"),
            (written("Look.", &[" \n"]), "a cell is empty"),
            (written(" ", &[]), "the answer is empty"),
            (
                written("Look.", &["print('<|execute_end|>')"]),
                "would read other code",
            ),
            (
                written("<|execute_start|>\nx = 1\n<|execute_end|>", &["y = 2"]),
                "would read other code",
            ),
        ] {
            let error = turn.write(pybench).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        let tools = format_named("tools").unwrap();
        assert!(written("Both.", &["a", "b"]).write(tools).is_ok());
    }
}
