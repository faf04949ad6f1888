//! What the readers of file formats share: the kinds of rows, their default columns, and errors.

use std::path::{Path, PathBuf};

use pybench_chat_template::Message;
use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use pybench_types::exit_code::ExitCode;
use pybench_types::held_out::Unseen;

use crate::hub_client::HubError;
use crate::record::{Conversation, Record};
use crate::remote::RemoteError;

/// File name extensions that are read.
pub(crate) const EXTENSIONS: [&str; 4] = ["parquet", "jsonl", "json", "ipynb"];
pub(crate) const MAX_MESSAGES: usize = 10_000;

/// What a row of a source is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    #[default]
    Messages,
    /// Plain text, such as the `content` column of starcoderdata, and notebooks (.ipynb).
    Text,
    /// Pairs in TRL's conversational preference format: lists of messages in `prompt`, `chosen` and `rejected`.
    Preference,
}

#[derive(Debug, Error)]
pub enum SourceError {
    #[error("{path}: {error}")]
    Io {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{name}: no {} file{prefix}", EXTENSIONS.map(|e| format!(".{e}")).join(", "))]
    Empty { name: String, prefix: String },
    #[error("data source {name} has {has} `path` and `hub`; give exactly one of them")]
    Ambiguous { name: String, has: &'static str },
    #[error("{path}: {reason}")]
    Broken { path: PathBuf, reason: String },
    #[error("{location}: {reason}")]
    Row { location: String, reason: String },
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    Remote(#[from] RemoteError),
}

impl SourceError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Io { error, .. } => ExitCode::of_io(error),
            Self::Hub(error) => error.exit_code(),
            Self::Remote(error) => error.exit_code(),
            _ => ExitCode::BadInput,
        }
    }
}

pub(crate) type Records = Box<dyn Iterator<Item = Result<Record, SourceError>> + Send>;

pub(crate) fn io(path: &Path) -> impl Fn(std::io::Error) -> SourceError + '_ {
    move |error| SourceError::Io {
        path: path.into(),
        error,
    }
}

/// Maps ShareGPT's role names to the common ones.
pub(crate) fn normalize_role(name: &str) -> &str {
    match name {
        "human" => "user",
        "gpt" => "assistant",
        other => other,
    }
}

/// Whether a column is read when the recipe names none.
pub(crate) fn is_default_column(kind: RecordKind, name: &str) -> bool {
    match kind {
        RecordKind::Messages => ["messages", "conversations"].contains(&name),
        RecordKind::Text => ["content", "text"].contains(&name),
        RecordKind::Preference => name == "chosen",
    }
}

/// The names of the default columns, for error messages.
pub(crate) fn default_columns(kind: RecordKind) -> &'static str {
    match kind {
        RecordKind::Messages => "messages or conversations",
        RecordKind::Text => "content or text",
        RecordKind::Preference => "chosen",
    }
}

/// The column with the tools that the assistant may call.
pub(crate) const TOOLS_COLUMN: &str = "tools";

/// The columns that say what training rows lack of a conversation.
pub(crate) const UNSEEN_COLUMNS: [&str; 2] = ["unseen", "held_out_template"];

/// The column that says how difficult a composed task is.
pub(crate) const DIFFICULTY_COLUMN: &str = "difficulty";

/// What training rows lack of a conversation with these values of [`UNSEEN_COLUMNS`].
pub(crate) fn unseen(name: Option<&str>, held_out_template: bool) -> Unseen {
    let named = name.and_then(Unseen::named);
    named.unwrap_or(match held_out_template {
        true => Unseen::Template,
        false => Unseen::Files,
    })
}

/// A list that may be written as a JSON string; null and an empty string are empty.
pub(crate) fn json_list(name: &str, value: Value) -> Result<Vec<Value>, String> {
    match value {
        Value::Null => Ok(vec![]),
        Value::Array(items) => Ok(items),
        Value::String(text) if text.trim().is_empty() => Ok(vec![]),
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(items) => Ok(Option::unwrap_or_default(items)),
            Err(error) => Err(format!("{name} is not a JSON list: {error}")),
        },
        _ => Err(format!("{name} is not a list")),
    }
}

/// Parses a list of messages.
pub(crate) fn messages(found: Value) -> Result<Vec<Message>, String> {
    match found {
        Value::Array(found) => found.into_iter().map(message).collect(),
        _ => Err("the messages are not a list".into()),
    }
}

/// Parses a message. The content may be null or missing, as in a message that only calls tools.
fn message(mut value: Value) -> Result<Message, String> {
    let calls = value["tool_calls"].as_array();
    if calls.is_some_and(|c| !c.is_empty()) && value.get("content").is_none() {
        value["content"] = "".into();
    }
    for key in ["content", "value"] {
        if let Some(content) = value.get_mut(key).filter(|content| content.is_null()) {
            *content = "".into();
        }
    }
    let mut message: Message = serde_json::from_value(value).map_err(|error| error.to_string())?;
    message.role = normalize_role(&message.role).to_owned();
    Ok(message)
}

/// A conversation, if it is not too long.
pub(crate) fn conversation(
    mut messages: Vec<Message>,
    tools: Vec<Value>,
    unseen: Unseen,
    difficulty: u32,
    location: String,
) -> Result<Record, SourceError> {
    if messages.len() > MAX_MESSAGES {
        let reason = format!("{} messages, more than {MAX_MESSAGES}", messages.len());
        return Err(SourceError::Row { location, reason });
    }
    messages.iter_mut().for_each(Message::parse_arguments);
    Ok(Record::Conversation(Conversation {
        messages,
        tools,
        unseen,
        difficulty,
        location,
    }))
}
