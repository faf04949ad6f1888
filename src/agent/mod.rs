//! The ReAct loop between a teacher and an interpreter, and the message formats it speaks.

mod log;
mod pybench;
mod react;
mod text;

pub use log::JournalLog;
pub use pybench::{END, PybenchFormat, START};
pub use react::{Job, Solved, Step, TurnLog, interpreter_failure, solve};
pub use text::observation_text;

use crate::interpreter::Observation;
use crate::run::FormatChoice;
use crate::task::Task;
use crate::trajectory::Message;

/// The format that a recipe names.
pub fn format(choice: FormatChoice) -> &'static dyn Format {
    match choice {
        FormatChoice::Pybench => &PybenchFormat,
    }
}

/// How tasks, code, observations and answers are framed as messages.
pub trait Format: Send + Sync {
    /// Name that enters ids and rows.
    fn name(&self) -> &'static str;

    /// The messages before the first reply: system prompt, files, query.
    fn opening(&self, task: &Task) -> Vec<Message>;

    /// Sequences at which a reply ends.
    fn stop(&self) -> Vec<String>;

    /// What a reply asks for.
    fn parse<'a>(&self, reply: &'a str) -> Parsed<'a>;

    /// The reply as it enters the conversation: cut after its first cell (what follows was written
    /// without having seen the result), with the end token that a stop sequence took put back
    /// unless the reply was cut at its token limit.
    fn tidy(&self, reply: &str, truncated: bool) -> String;

    /// The message that carries an observation back.
    fn observe(&self, observation: &Observation) -> Message;

    /// A reply that thinks and runs a cell; `parse` gives the cell back.
    fn write_step(&self, thought: &str, cell: &str) -> String;

    /// A reply that ends the run; `parse` gives the answer back.
    fn write_answer(&self, answer: &str) -> String;
}

/// What a reply asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// Run this cell.
    Cell(&'a str),
    /// The run is over; the answer says that it is finished.
    Answer(&'a str),
    /// The run is over, but the reply does not say so in the format's words.
    Unfinished(&'a str),
    /// The reply breaks the format (a code block that never closes, two blocks where one may be).
    Malformed(&'static str),
}
