//! The ReAct loop between a model and an interpreter, and its message formats.

mod code_interpreter;
mod codeact;
mod convert;
mod correction;
mod feedback;
#[cfg(test)]
mod linear_tests;
mod live_turns;
mod log;
#[cfg(test)]
mod memory_log;
pub mod notebook;
#[cfg(test)]
mod prompt_tests;
mod pybench;
mod pybench_short;
mod react;
mod solver;
mod text;
mod tools;

pub use self::pybench::{END, PybenchFormat, START};
pub use code_interpreter::CodeInterpreterFormat;
pub use codeact::CodeActFormat;
pub use convert::{Act, Converted, Dialogue, DialogueMessage, Part, System, Unsupported, convert};
pub use correction::{Contrast, MAX_CORRECTION_NOTE, contrast, correct, fork};
pub use feedback::{Feedback, TurnContext, TurnFeedback};
pub use live_turns::live_turns;
pub use log::JournalLog;
pub use pybench_short::PybenchShortFormat;
pub use react::{AttemptResult, AttemptSpec, Step, TurnLog, format_error, solve};
pub use solver::{CORRECTION, ScriptedSolver, Solver, chat_failure};
pub use text::observation_text;
pub use tools::ToolsFormat;

use pybench_run::FormatChoice;
use pybench_types::observation::Observation;
use pybench_types::task::Task;
use pybench_types::trajectory::{Message, Role};

/// The format that a recipe names.
pub fn format(choice: FormatChoice) -> &'static dyn Format {
    match choice {
        FormatChoice::Pybench => &PybenchFormat,
        FormatChoice::Codeact => &CodeActFormat,
        FormatChoice::Tools => &ToolsFormat,
        FormatChoice::CodeInterpreter => &CodeInterpreterFormat,
        FormatChoice::PybenchShort => &PybenchShortFormat,
    }
}

/// The format with this name, as stored in trajectories and rows.
pub fn format_named(name: &str) -> Option<&'static dyn Format> {
    let all = FormatChoice::ALL.map(format);
    all.into_iter().find(|format| format.name() == name)
}

/// The system prompt, a notice of the uploaded files if there are any, and the query.
pub fn initial_messages(system: &str, query: &str, files: &[&str]) -> Vec<Message> {
    let mut messages = vec![Message::new(Role::System, system)];
    if !files.is_empty() {
        let paths: Vec<_> = files.iter().map(|name| format!("./data/{name}")).collect();
        let notice = format!("[INFO]The data is uploaded to {}", paths.join(","));
        messages.push(Message::new(Role::User, notice));
    }
    messages.push(Message::new(Role::User, query));
    messages
}

/// A message format: how tasks, code, observations and answers become messages.
pub trait Format: Send + Sync {
    /// Name in ids and rows.
    fn name(&self) -> &'static str;

    /// The system prompt.
    fn system(&self) -> &'static str;

    /// The messages before the first reply: system prompt, files, query.
    fn initial_messages(&self, task: &Task) -> Vec<Message> {
        let files: Vec<_> = task.files.iter().map(|file| file.name.as_str()).collect();
        initial_messages(self.system(), &task.query, &files)
    }

    /// The tools that every request offers, as OpenAI's `tools`.
    fn tools(&self) -> Option<serde_json::Value> {
        None
    }

    /// Maximum number of cells of one reply that are run.
    fn max_cells(&self) -> usize {
        1
    }

    /// Whether a reply with code may have other text. If not, thoughts are comments in the code.
    fn has_thoughts(&self) -> bool {
        true
    }

    /// Stop sequences.
    fn stop(&self) -> Vec<String>;

    /// Instruction for a model whose reply violates the format.
    fn format_hint(&self) -> &'static str {
        "Reply with one complete code block, or with Finished: and the answer."
    }

    /// Texts of which every reply with code or an answer contains one, in capital or small letters. Empty if a reply
    /// may be an answer without such a text.
    fn openings(&self) -> &'static [&'static str] {
        &[]
    }

    /// Parses a reply.
    fn parse<'a>(&self, reply: &'a str) -> Parsed<'a>;

    /// The reply as it enters the conversation: truncated after its first cell, because the rest was written
    /// without seeing the result. An end token that a stop sequence removed is restored, unless the reply was
    /// truncated at its token limit.
    fn truncate(&self, reply: &str, truncated: bool) -> String;

    /// The message for an observation.
    fn observe(&self, observation: &Observation) -> Message {
        self.write_observation(&observation_text(observation))
    }

    /// The message for the text of an observation.
    fn write_observation(&self, text: &str) -> Message;

    /// The text of an observation message; `None` for other messages.
    fn parse_observation<'a>(&self, message: &'a Message) -> Option<&'a str>;

    /// Formats a reply with a thought and a cell; `parse` returns the cell.
    fn write_step(&self, thought: &str, cell: &str) -> String;

    /// Formats a reply with a thought and several cells; `None` if the format allows only one cell per reply.
    fn write_steps(&self, thought: &str, cells: &[String]) -> Option<String> {
        match cells {
            [cell] => Some(self.write_step(thought, cell)),
            _ => None,
        }
    }

    /// Formats a final answer; `parse` returns the answer.
    fn write_answer(&self, answer: &str) -> String;
}

/// The meaning of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// Run this cell.
    Cell(&'a str),
    /// Run these cells in order; a call that cannot be run carries the reason.
    Calls(Vec<Result<String, &'static str>>),
    /// The trajectory ends with this answer.
    Answer(&'a str),
    /// The trajectory ends, but the reply does not mark its answer as the format requires.
    Unfinished(&'a str),
    /// The reply violates the format, for example with a code block that is not closed.
    Malformed(&'static str),
}

impl Parsed<'_> {
    /// The requested cells, or the reason why there is no cell.
    pub fn cells(&self) -> Vec<Result<String, &'static str>> {
        match self {
            Self::Cell(cell) => vec![Ok((*cell).to_owned())],
            Self::Calls(calls) => calls.clone(),
            Self::Malformed(why) => vec![Err(why)],
            Self::Answer(_) | Self::Unfinished(_) => Vec::new(),
        }
    }
}
