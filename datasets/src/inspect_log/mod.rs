//! Logs of inspect_ai: the evaluations that `inspect view` shows. Written for version 0.3.285 of inspect_ai.
//!
//! An `.eval` log is a zip of JSON files, one for each sample; a `.json` log is one JSON file. [`each_sample`] reads both, and
//! [`LogWriter`] writes the first. Events of samples are neither read nor written: a conversation is in the messages.
//! Logs are untrusted: members, all of them together, messages and attachments are bounded, and no name becomes a path.

mod archive;
mod python_json;
mod read;
mod values;
mod write;

use pybench_llm::tool_calls::{self, ToolCall};
use pybench_types::trajectory::{Message, Role};
use serde::{Deserialize, Serialize};

pub use read::{each_sample, is_log, log_files};
pub use write::{AgentLog, LogWriter};

/// Version of the format.
const VERSION: u64 = 2;
/// The head of a complete log, and that of one whose evaluation goes on or was killed.
const HEADER: &str = "header.json";
const START: &str = "_journal/start.json";
/// Summaries of all samples.
const SUMMARIES: &str = "summaries.json";
/// Folder of the samples.
const SAMPLES: &str = "samples/";

/// What a log is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogHead {
    pub task: String,
    pub model: String,
    /// `started`, `success`, `cancelled` or `error`.
    pub status: String,
    /// Time of its start, as the log has it.
    pub created: String,
}

/// A sample of a log: an attempt at a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogSample {
    /// Id of the task within its dataset.
    pub id: String,
    /// Number of the attempt, from 1.
    pub epoch: u64,
    /// Id of the attempt; empty in old logs.
    pub uuid: String,
    /// What is expected, as text or JSON.
    pub target: String,
    pub messages: Vec<LogMessage>,
    pub scores: Vec<LogScore>,
    /// Why it has no result; empty if it has one.
    pub error: String,
    /// The limit that ended it.
    pub limit: Option<LogLimit>,
    pub seconds: f64,
    pub tokens_in: u64,
    pub tokens_out: u64,
}

/// A limit that ended a sample.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogLimit {
    /// `turn`, `message`, `token`, `time`, …
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(rename = "limit")]
    pub value: f64,
}

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogMessage {
    pub role: Role,
    pub text: String,
    /// Images as data URLs. Other URLs are texts of the log like all others: nothing may load them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<String>,
    /// Calls that a reply makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<LogCall>,
    /// Id of the call that this message answers; empty if it answers none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub answers: String,
    /// Why the call failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// A call of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogCall {
    pub id: String,
    pub function: String,
    /// The arguments as JSON.
    pub arguments: String,
}

/// A score of a sample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogScore {
    pub name: String,
    /// The value as text or JSON: `C`, `I`, `0.5`, `{"a": 1}`.
    pub value: String,
    /// Whether the value means that the sample passed; `None` for values that are neither.
    pub passed: Option<bool>,
    pub answer: String,
    pub explanation: String,
}

/// Arguments that are code, by the names that tools of inspect_ai and others use.
const CODE_ARGUMENTS: [&str; 4] = ["code", "cmd", "command", "script"];

impl LogCall {
    /// The code that the call runs: its only argument if that is code, else the call as it is.
    pub fn code(&self) -> String {
        let arguments: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(&self.arguments).unwrap_or_default();
        let mut each = arguments.iter();
        match (each.next(), each.next()) {
            (Some((name, serde_json::Value::String(code))), None)
                if CODE_ARGUMENTS.contains(&&**name) =>
            {
                match &*self.function {
                    "python" => code.clone(),
                    function => format!("# {function}\n{code}"),
                }
            }
            _ => format!("{}({})", self.function, self.arguments),
        }
    }
}

impl LogSample {
    /// The conversation in the message format `tools`.
    pub fn as_messages(&self) -> Vec<Message> {
        let message = |message: &LogMessage| {
            let call = |call: &LogCall| ToolCall {
                name: call.function.clone(),
                arguments: call.arguments.clone(),
            };
            let calls: Vec<ToolCall> = message.calls.iter().map(call).collect();
            let text = match (message.text.is_empty(), message.error.is_empty()) {
                (true, false) => &message.error,
                _ => &message.text,
            };
            let text = match message.role {
                Role::Assistant => tool_calls::write(text, &calls),
                _ => text.clone(),
            };
            Message::new(message.role, text)
        };
        self.messages.iter().map(message).collect()
    }

    /// A name of the attempt that is unique in its log.
    pub fn name(&self) -> String {
        format!("{}-{}", self.id, self.epoch)
    }
}

#[cfg(test)]
mod tests;
