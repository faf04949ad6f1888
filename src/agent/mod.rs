//! The ReAct loop between a teacher and an interpreter, and the message formats it speaks.

mod codeact;
mod convert;
mod log;
mod pybench;
mod react;
mod text;
mod tools;

pub use codeact::CodeActFormat;
pub use convert::{Act, Converted, Part, Said, System, Talk, Unsayable, convert};
pub use log::JournalLog;
pub use pybench::{END, PybenchFormat, START};
pub use react::{Job, Solved, Step, TurnLog, interpreter_failure, solve, teacher_failure};
pub use text::observation_text;
pub use tools::ToolsFormat;

use crate::interpreter::Observation;
use crate::run::FormatChoice;
use crate::task::Task;
use crate::trajectory::{Message, Role};

/// The format that a recipe names.
pub fn format(choice: FormatChoice) -> &'static dyn Format {
    match choice {
        FormatChoice::Pybench => &PybenchFormat,
        FormatChoice::Codeact => &CodeActFormat,
        FormatChoice::Tools => &ToolsFormat,
    }
}

/// The format of that name, as trajectories and rows have it.
pub fn format_named(name: &str) -> Option<&'static dyn Format> {
    use FormatChoice::*;
    let all = [Pybench, Codeact, Tools].map(format);
    all.into_iter().find(|format| format.name() == name)
}

/// System prompt, the notice of uploaded files where there are some, and the query.
fn opening(system: &str, task: &Task) -> Vec<Message> {
    let mut messages = vec![Message::new(Role::System, system)];
    if !task.files.is_empty() {
        let paths = task
            .files
            .iter()
            .map(|file| format!("./data/{}", file.name));
        let paths: Vec<_> = paths.collect();
        let notice = format!("[INFO]The data is uploaded to {}", paths.join(","));
        messages.push(Message::new(Role::User, notice));
    }
    messages.push(Message::new(Role::User, task.query.clone()));
    messages
}

/// How tasks, code, observations and answers are framed as messages.
pub trait Format: Send + Sync {
    /// Name that enters ids and rows.
    fn name(&self) -> &'static str;

    /// The system prompt.
    fn system(&self) -> &'static str;

    /// The messages before the first reply: system prompt, files, query.
    fn opening(&self, task: &Task) -> Vec<Message> {
        opening(self.system(), task)
    }

    /// What every request says of tools, as OpenAI's `tools`.
    fn tools(&self) -> Option<serde_json::Value> {
        None
    }

    /// Most cells of one reply that are run.
    fn most_cells(&self) -> usize {
        1
    }

    /// Sequences at which a reply ends.
    fn stop(&self) -> Vec<String>;

    /// What a model that broke the format is told to do.
    fn rule(&self) -> &'static str {
        "Reply with one complete code block, or with Finished: and the answer."
    }

    /// What a reply asks for.
    fn parse<'a>(&self, reply: &'a str) -> Parsed<'a>;

    /// The reply as it enters the conversation: cut after its first cell (what follows was written
    /// without having seen the result), with the end token that a stop sequence took put back
    /// unless the reply was cut at its token limit.
    fn tidy(&self, reply: &str, truncated: bool) -> String;

    /// The message that carries an observation back.
    fn observe(&self, observation: &Observation) -> Message {
        self.write_heard(&observation_text(observation))
    }

    /// The message that carries the text of an observation back.
    fn write_heard(&self, text: &str) -> Message;

    /// The text of an observation that a message carries; `None` for any other message.
    fn heard<'a>(&self, message: &'a Message) -> Option<&'a str>;

    /// A reply that thinks and runs a cell; `parse` gives the cell back.
    fn write_step(&self, thought: &str, cell: &str) -> String;

    /// A reply that thinks and runs several cells; `None` where the format has one cell per reply.
    fn write_steps(&self, thought: &str, cells: &[String]) -> Option<String> {
        match cells {
            [cell] => Some(self.write_step(thought, cell)),
            _ => None,
        }
    }

    /// A reply that ends the run; `parse` gives the answer back.
    fn write_answer(&self, answer: &str) -> String;
}

/// What a reply asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// Run this cell.
    Cell(&'a str),
    /// Run these one after another; a call that cannot be run says why.
    Calls(Vec<Result<String, &'static str>>),
    /// The run is over; the answer says that it is finished.
    Answer(&'a str),
    /// The run is over, but the reply does not say so in the format's words.
    Unfinished(&'a str),
    /// The reply breaks the format (a code block that never closes, two blocks where one may be).
    Malformed(&'static str),
}

impl Parsed<'_> {
    /// The cells that are asked for, or why there is none in the place of one.
    pub fn asked(&self) -> Vec<Result<String, &'static str>> {
        match self {
            Self::Cell(cell) => vec![Ok((*cell).to_owned())],
            Self::Calls(calls) => calls.clone(),
            Self::Malformed(why) => vec![Err(why)],
            Self::Answer(_) | Self::Unfinished(_) => Vec::new(),
        }
    }
}
