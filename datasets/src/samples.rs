//! Datasets of conversations as they are found: our shards, PyInstruct and CodeActInstruct, ShareGPT-like
//! JSON, one object per line or an array of them, Parquet.
//!
//! Whatever the file, a row becomes a JSON value first and a [`Sample`] then, so that all kinds mean the
//! same. Files come from elsewhere: lines, rows and depth are bounded.

mod json;
mod parquet;

use std::path::{Path, PathBuf};

use pybench::agent::format_named;
use pybench::trajectory::{Message, Role};
use serde_json::Value;

/// Most messages of a row.
const MOST_MESSAGES: usize = 10_000;
/// Most files of a folder.
const MOST_FILES: usize = 10_000;
/// Columns that hold messages, the first that is there.
const MESSAGES: [&str; 3] = ["messages", "conversations", "conversation"];
/// Columns read besides, where they are there; `files` for its types.
const FACTS: [&str; 10] = [
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
    /// `file:row`, rows from 1.
    pub place: String,
    /// What was said.
    pub messages: Vec<Message>,
    /// What else the row says of itself, by column.
    facts: Vec<(&'static str, String)>,
    /// Types of its files.
    pub kinds: Vec<String>,
}

/// Why a dataset cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Reading failed.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: std::io::Error,
    },
    /// It is not what it should be.
    #[error("{path}: {reason}", path = .path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        reason: String,
    },
    /// Whoever asked for the rows had enough.
    #[error("{0}")]
    Stopped(String),
}

impl Sample {
    /// What the row says of itself in that column.
    pub fn fact(&self, column: &str) -> Option<&str> {
        let mut facts = self.facts.iter();
        facts.find_map(|(name, value)| (*name == column).then_some(&**value))
    }

    /// The id of the trajectory, or of the row.
    pub fn id(&self) -> Option<&str> {
        self.fact("trajectory_id").or(self.fact("id"))
    }

    /// Replies of the model: the turns of the paper's table.
    pub fn turns(&self) -> usize {
        let replies = self.messages.iter();
        replies.filter(|m| m.role == Role::Assistant).count()
    }

    /// UTF-8 bytes of all messages.
    pub fn bytes(&self) -> usize {
        self.messages.iter().map(|m| m.content.len()).sum()
    }

    /// The message format: as the row says, otherwise by the marks of its replies.
    pub fn format(&self) -> &'static str {
        let named = self.fact("format").and_then(format_named);
        let replies = || self.messages.iter().filter(|m| m.role == Role::Assistant);
        let speaks = |mark: &str| replies().any(|m| m.content.contains(mark));
        match named {
            Some(format) => format.name(),
            None if speaks("<execute>") => "codeact",
            None if speaks("<tool_call>") => "tools",
            None => "pybench",
        }
    }

    fn of(place: String, row: &Value) -> Result<Self, String> {
        let said = MESSAGES.iter().find_map(|name| row.get(*name));
        let said = said.and_then(Value::as_array).ok_or_else(|| {
            format!(
                "no list of messages: none of the columns {}",
                MESSAGES.join(", ")
            )
        })?;
        if said.len() > MOST_MESSAGES {
            return Err(format!("more than {MOST_MESSAGES} messages"));
        }
        let messages = said.iter().enumerate().map(|(at, said)| {
            message(said).ok_or_else(|| format!("message {}: no role and content", at + 1))
        });
        let fact = |name: &&'static str| match row.get(*name)? {
            Value::String(text) => Some((*name, text.clone())),
            Value::Number(number) => Some((*name, number.to_string())),
            _ => None,
        };
        let files = row.get("files").and_then(Value::as_array);
        let kind = |file: &Value| Some(file.get("kind")?.as_str()?.to_owned());
        let mut kinds: Vec<_> = files.into_iter().flatten().filter_map(kind).collect();
        kinds.sort();
        kinds.dedup();
        Ok(Self {
            messages: messages.collect::<Result<_, _>>()?,
            facts: FACTS.iter().filter_map(fact).collect(),
            kinds,
            place,
        })
    }
}

/// A message under any of the usual names; calls of tools become text, as our own rows have them.
fn message(said: &Value) -> Option<Message> {
    let text = |names: [&str; 2]| names.iter().find_map(|name| said.get(*name));
    let role = match text(["role", "from"])?.as_str()? {
        "system" => Role::System,
        "assistant" | "gpt" | "model" | "chatgpt" | "bot" => Role::Assistant,
        "tool" | "function" | "ipython" | "observation" => Role::Tool,
        "user" | "human" => Role::User,
        _ => return None,
    };
    let content = text(["content", "value"]).and_then(Value::as_str);
    let calls = said.get("tool_calls").and_then(Value::as_array);
    let call = |call: &Value| {
        let function = call.get("function")?;
        let arguments = function.get("arguments")?;
        Some(pybench::llm::calls::Call {
            name: function.get("name")?.as_str()?.to_owned(),
            arguments: arguments
                .as_str()
                .map_or_else(|| arguments.to_string(), str::to_owned),
        })
    };
    let calls: Vec<_> = calls.into_iter().flatten().filter_map(call).collect();
    if content.is_none() && calls.is_empty() {
        return None;
    }
    let content = pybench::llm::calls::write(content.unwrap_or_default(), &calls);
    Some(Message::new(role, content))
}

/// Hands every sample of a dataset to `visit`: of a file, or of the Parquet and JSON files of a folder
/// (below `data/` where there is such a folder) in the order of their names.
///
/// # Errors
/// What cannot be read, with file and row; what `visit` returns.
pub fn read(
    path: &Path,
    visit: &mut dyn FnMut(Sample) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    for file in files(path)? {
        let name = file.display().to_string();
        let broken = |reason: String| ReadError::Broken {
            path: file.clone(),
            reason,
        };
        let mut row = 0_usize;
        let mut take = |value: Value| {
            row += 1;
            let sample = Sample::of(format!("{name}:{row}"), &value);
            visit(sample.map_err(|reason| broken(format!("row {row}: {reason}")))?)
        };
        match is_parquet(&file) {
            true => parquet::rows(&file, &mut take)?,
            false => json::rows(&file, &mut take)?,
        }
    }
    Ok(())
}

/// Columns that are read.
fn wanted(column: &str) -> bool {
    MESSAGES.contains(&column) || FACTS.contains(&column) || column == "files"
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
    let known = |path: &PathBuf| {
        let end = path.extension().and_then(|end| end.to_str());
        matches!(end, Some("parquet" | "jsonl" | "json"))
    };
    let entries = std::fs::read_dir(folder).map_err(io)?.flatten();
    let found = entries.map(|entry| entry.path()).filter(known);
    let mut found: Vec<_> = found.take(MOST_FILES).collect();
    // Beside Parquet, JSON describes it.
    if found.iter().any(|path| is_parquet(path)) {
        found.retain(|path| is_parquet(path));
    }
    found.sort();
    match found.is_empty() {
        true => Err(ReadError::Broken {
            path: path.to_owned(),
            reason: "no .parquet, .jsonl or .json file".to_owned(),
        }),
        false => Ok(found),
    }
}

#[cfg(test)]
#[path = "samples/tests.rs"]
mod tests;
