//! Preference pairs as a file in Parquet, with the columns of TRL's conversational preference datasets.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};
use parquet::arrow::ArrowWriter;
use pybench_run::{RunError, write_atomically};
use pybench_types::human_edit::HumanEdit;
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, Role};
use serde::{Deserialize, Serialize};

use crate::DatasetError;
use crate::row;
use crate::schema::{list, lists, strings, text};
use crate::scrub::Scrubber;
use crate::shards::{ShardSettings, properties};

/// Two replies to the same messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preference {
    pub prompt: Vec<Message>,
    /// The first reply of a correction, by a script or a person, which led to a result that the checks accept.
    pub chosen: Vec<Message>,
    /// The student's reply, on the way to a result that they reject.
    pub rejected: Vec<Message>,
    /// The tools that the messages may call, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    pub task_id: Digest,
}

impl Preference {
    /// The pair of the reply at position `at` of `messages` and the rejected one; `None` if they are equal.
    pub fn new(
        messages: &[Message],
        at: usize,
        rejected: &str,
        tools: Option<String>,
        task_id: Digest,
    ) -> Option<Self> {
        let prompt = messages[..at].iter().cloned();
        // A tokenizer could join white space at the beginning of a reply with the end of the prompt.
        let reply = |content: &str| vec![Message::new(Role::Assistant, content.trim_start())];
        Some(Self {
            // Neither side trains what is before it.
            prompt: prompt.map(|m| Message::new(m.role, m.content)).collect(),
            chosen: reply(&messages[at].content),
            rejected: reply(rejected),
            tools,
            task_id,
        })
        .filter(|pair| pair.chosen != pair.rejected)
    }

    /// The pair at the turn that a person edited; `None` if the reply is the recorded one.
    pub fn of_edit(edit: &HumanEdit) -> Option<Self> {
        let trajectory = &edit.trajectory;
        let (at, tools) = (edit.first_reply()?, row::tools(&trajectory.format));
        let task = trajectory.task.clone();
        Self::new(&trajectory.messages, at, &edit.rejected, tools, task)
    }

    /// The pair without secrets and names of this machine.
    #[must_use]
    pub fn scrubbed(mut self, scrubber: &Scrubber) -> Self {
        let sides = [&mut self.prompt, &mut self.chosen, &mut self.rejected];
        for message in sides.into_iter().flatten() {
            message.content = scrubber.text(&message.content).text;
        }
        self
    }
}

/// The pairs as JSON, one in each line.
///
/// # Errors
/// A pair cannot be serialized.
pub fn to_jsonl(pairs: &[Preference]) -> Result<String, RunError> {
    let mut text = String::new();
    for pair in pairs {
        text += &(serde_json::to_string(pair)? + "\n");
    }
    Ok(text)
}

/// Replaces the file by one with these pairs. Messages have a role and a content, and no weight: neither side trains what
/// is before it.
///
/// # Errors
/// I/O errors.
pub fn write_parquet(path: &Path, pairs: &[Preference]) -> Result<(), RunError> {
    let bytes = parquet(pairs).map_err(|error| RunError::Internal(error.to_string()))?;
    write_atomically(path, &bytes)
}

fn parquet(pairs: &[Preference]) -> Result<Vec<u8>, DatasetError> {
    let properties = properties(&ShardSettings::default())?;
    let path = Path::new("preferences");
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, Arc::new(schema()), Some(properties))
        .map_err(DatasetError::parquet(path))?;
    writer
        .write(&batch(pairs)?)
        .map_err(DatasetError::parquet(path))?;
    writer.close().map_err(DatasetError::parquet(path))?;
    Ok(bytes)
}

fn schema() -> Schema {
    Schema::new(vec![
        list("prompt", messages()),
        list("chosen", messages()),
        list("rejected", messages()),
        Field::new("tools", DataType::Utf8, true),
        text("task_id"),
    ])
}

fn messages() -> Fields {
    [text("role"), text("content")].into_iter().collect()
}

fn batch(pairs: &[Preference]) -> Result<RecordBatch, ArrowError> {
    let column = |side: fn(&Preference) -> &[Message]| lists(messages(), pairs, side, columns);
    let tools = pairs.iter().map(|pair| pair.tools.as_deref());
    let columns: Vec<ArrayRef> = vec![
        column(|pair| &pair.prompt)?,
        column(|pair| &pair.chosen)?,
        column(|pair| &pair.rejected)?,
        Arc::new(StringArray::from_iter(tools)),
        strings(pairs, |pair| pair.task_id.as_str()),
    ];
    RecordBatch::try_new(Arc::new(schema()), columns)
}

fn columns(messages: &[&Message]) -> Vec<ArrayRef> {
    vec![
        strings(messages, |message| message.role.name()),
        strings(messages, |message| &message.content),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages() -> Vec<Message> {
        vec![
            Message::new(Role::User, "Count."),
            Message::new(Role::Assistant, "I look.").as_context(),
            Message::new(Role::User, "Seen."),
            Message::new(Role::Assistant, "\n2"),
        ]
    }

    #[test]
    fn the_sides_share_the_messages_before_them() {
        let task = Digest::of_bytes(b"task");
        let pair = Preference::new(&messages(), 3, " 3", None, task.clone()).unwrap();
        assert_eq!((pair.prompt.len(), &*pair.chosen[0].content), (3, "2"));
        assert_eq!(pair.rejected, [Message::new(Role::Assistant, "3")]);
        // TRL knows no weights.
        let text = to_jsonl(&[pair]).unwrap();
        assert!(!text.contains("weight"), "{text}");
        assert_eq!(Preference::new(&messages(), 3, "2", None, task), None);
    }
}
