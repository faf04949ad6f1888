//! Reads conversations from common dataset formats: our shards, PyInstruct, CodeActInstruct and ShareGPT-like
//! data, as Parquet, JSON lines or a JSON array.
//!
//! Each row is first converted to a JSON value and then to a [`Sample`], so all formats are handled the same way.
//! Input is untrusted: the length of lines, the number of messages and the nesting depth are limited.

mod json;
pub mod parquet;

use std::path::{Path, PathBuf};

use pybench_agent::{Parsed, format_named};
use pybench_llm::tool_calls::{PYTHON_TAG, ToolCall};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, Role};
use serde_json::Value;

use crate::dedup::RowTexts;

/// Maximum number of messages in a row.
const MAX_MESSAGES: usize = 1_000_000;
/// Maximum number of files in a folder.
const MAX_FILES: usize = 10_000;
/// Columns that may contain the messages. The first existing one is used.
const MESSAGE_COLUMNS: [&str; 3] = ["messages", "conversations", "conversation"];
/// Columns that are read as metadata if they exist. In addition, `files` is read for the file types, and `tokens`.
const METADATA_COLUMNS: [&str; 11] = [
    "task_id",
    "trajectory_id",
    "id",
    "category",
    "subcategory",
    "keyword",
    "template",
    "language",
    "teacher",
    "format",
    "end",
];

/// A conversation of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Location of the row as `file:row`, rows from 1.
    pub location: String,
    pub messages: Vec<Message>,
    /// Other columns of the row, by name.
    metadata: Vec<(&'static str, String)>,
    /// Types of the input files.
    pub kinds: Vec<String>,
    /// Input files of our own rows: name and digest.
    pub files: Vec<(String, Digest)>,
    /// Tokens of all calls, as our own rows say; 0 if they are unknown.
    pub tokens: u64,
}

/// Error while reading a dataset.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file could not be read.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The file is invalid.
    #[error("{path}: {reason}", path = .path.display())]
    Invalid {
        path: PathBuf,
        /// What is wrong, with line or row.
        reason: String,
    },
    /// The callback stopped the reading.
    #[error("{0}")]
    Stopped(String),
}

impl Sample {
    /// The value of a metadata column, as text.
    pub fn metadata(&self, column: &str) -> Option<&str> {
        let mut metadata = self.metadata.iter();
        metadata.find_map(|(name, value)| (*name == column).then_some(&**value))
    }

    /// The trajectory id, or the id of the row.
    pub fn id(&self) -> Option<&str> {
        self.metadata("trajectory_id").or(self.metadata("id"))
    }

    /// Number of assistant messages. The paper calls these turns.
    pub fn turns(&self) -> usize {
        let replies = self.messages.iter();
        replies.filter(|m| m.role == Role::Assistant).count()
    }

    /// UTF-8 bytes of all messages.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(|m| m.content.len()).sum()
    }

    /// The message format: from the column `format`, otherwise guessed from the markup in the replies.
    pub fn format(&self) -> &'static str {
        let named = self.metadata("format").and_then(format_named);
        let replies = || self.messages.iter().filter(|m| m.role == Role::Assistant);
        let uses = |mark: &str| replies().any(|m| m.content.contains(mark));
        match named {
            Some(format) => format.name(),
            None if uses("<execute>") => "codeact",
            None if uses("<tool_call>") => "tools",
            None if uses(PYTHON_TAG) => "code_interpreter",
            None => "pybench",
        }
    }

    /// The texts that it is compared by: the last message of the user before the first reply, and the cells.
    pub fn texts(&self) -> RowTexts {
        let is_reply = |message: &&Message| message.role == Role::Assistant;
        let before = self
            .messages
            .iter()
            .take_while(|message| !is_reply(message));
        let query = before.filter(|message| message.role == Role::User).last();
        let format = format_named(self.format());
        let mut cells = Vec::new();
        for message in self.messages.iter().filter(is_reply) {
            match format.map(|format| format.parse(&message.content)) {
                Some(Parsed::Cell(cell)) => cells.push(cell.to_owned()),
                Some(Parsed::Calls(calls)) => cells.extend(calls.into_iter().flatten()),
                _ => {}
            }
        }
        let query = query.map_or("", |message| message.content.as_str());
        RowTexts::new(query, &cells, &self.messages)
    }

    fn parse(location: String, row: &Value) -> Result<Self, String> {
        let messages = MESSAGE_COLUMNS.iter().find_map(|name| row.get(*name));
        let messages = messages.and_then(Value::as_array).ok_or_else(|| {
            format!(
                "no list of messages: expected one of the columns {}",
                MESSAGE_COLUMNS.join(", ")
            )
        })?;
        if messages.len() > MAX_MESSAGES {
            return Err(format!("more than {MAX_MESSAGES} messages"));
        }
        let messages = parse_messages(messages)?;
        let value = |name: &&'static str| match row.get(*name)? {
            Value::String(text) => Some((*name, text.clone())),
            Value::Number(number) => Some((*name, number.to_string())),
            _ => None,
        };
        let files = row.get("files").and_then(Value::as_array);
        let kind = |file: &Value| Some(file.get("kind")?.as_str()?.to_owned());
        let mut kinds: Vec<_> = files.into_iter().flatten().filter_map(kind).collect();
        kinds.sort();
        kinds.dedup();
        let named = |file: &Value| {
            let digest = file.get("blake3")?.as_str()?.to_owned();
            Some((
                file.get("name")?.as_str()?.to_owned(),
                Digest::try_from(digest).ok()?,
            ))
        };
        Ok(Self {
            files: files.into_iter().flatten().filter_map(named).collect(),
            messages,
            metadata: METADATA_COLUMNS.iter().filter_map(value).collect(),
            kinds,
            tokens: tokens(row),
            location,
        })
    }
}

/// The sum of the column `tokens` of our own rows, `{"prompt": …, "completion": …}`.
fn tokens(row: &Value) -> u64 {
    let count = |name: &str| row.get("tokens")?.get(name)?.as_u64();
    let counts = ["prompt", "completion"].map(|name| count(name).unwrap_or_default());
    counts[0].saturating_add(counts[1])
}

/// Parse the messages of a row. ShareGPT's calls are messages of their own; each becomes part of the reply before it.
fn parse_messages(values: &[Value]) -> Result<Vec<Message>, String> {
    let mut messages: Vec<Message> = Vec::with_capacity(values.len());
    for (at, value) in values.iter().enumerate() {
        match (sharegpt_call(value), messages.last_mut()) {
            (Some(call), Some(last)) if last.role == Role::Assistant => {
                last.content = pybench_llm::tool_calls::write(&last.content, &[call]);
            }
            (Some(call), _) => {
                let content = pybench_llm::tool_calls::write("", &[call]);
                messages.push(Message::new(Role::Assistant, content));
            }
            (None, _) => {
                let problem = || format!("message {}: no known role, or no content", at + 1);
                messages.push(message(value).ok_or_else(problem)?);
            }
        }
    }
    Ok(messages)
}

/// The call of a ShareGPT message `{"from": "function_call", "value": "{\"name\": …, \"arguments\": …}"}`.
fn sharegpt_call(value: &Value) -> Option<ToolCall> {
    let call = value.get("value").filter(|_| {
        let role = value.get("from").and_then(Value::as_str);
        role == Some("function_call")
    })?;
    tool_call(&serde_json::from_str(call.as_str()?).ok()?)
}

/// A call from its name and arguments.
fn tool_call(function: &Value) -> Option<ToolCall> {
    let arguments = function.get("arguments")?;
    Some(ToolCall {
        name: function.get("name")?.as_str()?.to_owned(),
        arguments: arguments
            .as_str()
            .map_or_else(|| arguments.to_string(), str::to_owned),
    })
}

/// Parse a message with any of the common field names. Tool calls are written as text, as in our own rows.
fn message(value: &Value) -> Option<Message> {
    let text = |names: [&str; 2]| names.iter().find_map(|name| value.get(*name));
    let role = match text(["role", "from"])?.as_str()? {
        "system" => Role::System,
        "assistant" | "gpt" | "model" | "chatgpt" | "bot" => Role::Assistant,
        "tool" | "function" | "ipython" | "observation" => Role::Tool,
        "user" | "human" => Role::User,
        _ => return None,
    };
    let content = text(["content", "value"]).and_then(Value::as_str);
    let calls = value.get("tool_calls").and_then(Value::as_array);
    let call = |call: &Value| tool_call(call.get("function")?);
    let calls: Vec<_> = calls.into_iter().flatten().filter_map(call).collect();
    if content.is_none() && calls.is_empty() {
        return None;
    }
    let content = pybench_llm::tool_calls::write(content.unwrap_or_default(), &calls);
    Some(Message::new(role, content))
}

/// Call `visit` for every sample of a dataset. `path` is a file, or a folder with Parquet or JSON files (in
/// `data/`, if that folder exists), which are read in the order of their names.
///
/// # Errors
/// Unreadable or invalid files, with file and row; errors returned by `visit`.
pub fn read(
    path: &Path,
    visit: &mut dyn FnMut(Sample) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    for file in files(path)? {
        let name = file.display().to_string();
        let invalid = |reason: String| ReadError::Invalid {
            path: file.clone(),
            reason,
        };
        let mut row = 0_usize;
        let mut on_row = |value: Value| {
            row += 1;
            let sample = Sample::parse(format!("{name}:{row}"), &value);
            visit(sample.map_err(|reason| invalid(format!("row {row}: {reason}")))?)
        };
        match is_parquet(&file) {
            true => parquet::rows(&file, &is_used_column, &mut on_row)?,
            false => json::rows(&file, &mut on_row)?,
        }
    }
    Ok(())
}

/// Like [`read`], but a dataset without rows is an error.
///
/// # Errors
/// As [`read`]; [`ReadError::Invalid`] if there are no rows.
pub fn read_rows(
    path: &Path,
    visit: &mut dyn FnMut(Sample) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut rows = 0_usize;
    read(path, &mut |sample| {
        rows += 1;
        visit(sample)
    })?;
    match rows {
        0 => Err(ReadError::Invalid {
            path: path.to_owned(),
            reason: "the dataset has no rows; name another file, or create it again".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Whether a column is read.
fn is_used_column(column: &str) -> bool {
    MESSAGE_COLUMNS.contains(&column)
        || METADATA_COLUMNS.contains(&column)
        || ["files", "tokens"].contains(&column)
}

fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "parquet")
}

fn files(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let io = |source| ReadError::Io {
        path: path.to_owned(),
        source,
    };
    if !std::fs::metadata(path).map_err(io)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let data = path.join("data");
    let folder = if data.is_dir() { &data } else { path };
    let is_data = |path: &PathBuf| {
        let end = path.extension().and_then(|end| end.to_str());
        matches!(end, Some("parquet" | "jsonl" | "json"))
    };
    let entries = std::fs::read_dir(folder).map_err(io)?.flatten();
    let found = entries.map(|entry| entry.path()).filter(is_data);
    let mut found: Vec<_> = found.take(MAX_FILES).collect();
    // JSON files next to Parquet files are metadata.
    if found.iter().any(|path| is_parquet(path)) {
        found.retain(|path| is_parquet(path));
    }
    found.sort();
    match found.is_empty() {
        true => Err(ReadError::Invalid {
            path: path.to_owned(),
            reason: "the folder has no .parquet, .jsonl or .json file".to_owned(),
        }),
        false => Ok(found),
    }
}

#[cfg(test)]
#[path = "samples/tests.rs"]
mod tests;
