//! Preference pairs as a file in Parquet, with the columns of TRL's conversational preference datasets.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, StringArray};
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};
use parquet::arrow::ArrowWriter;
use pybench_run::{RunError, write_atomically};
use pybench_types::id::Digest;
use pybench_types::trajectory::Message;
use serde::{Deserialize, Serialize};

use crate::DatasetError;
use crate::schema::{list, lists, strings, text};
use crate::shards::{ShardSettings, properties};

/// Two replies to the same messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Preference {
    pub prompt: Vec<Message>,
    /// The first reply of a correction, which led to a result that the checks accept.
    pub chosen: Vec<Message>,
    /// The student's reply, on the way to a result that they reject.
    pub rejected: Vec<Message>,
    /// The tools that the messages may call, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<String>,
    pub task_id: Digest,
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
