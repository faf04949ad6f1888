//! Reads trajectories from Parquet shards: messages by task id, and outputs that are in a content store.

use std::fs::File;
use std::path::{Path, PathBuf};

use polars::prelude::{JsonFormat, JsonWriter, ParquetReader, SerReader, SerWriter};
use pybench_run::{ContentStore, RunError};
use pybench_types::id::Digest;
use pybench_types::trajectory::{Message, OutputFile};
use serde::Deserialize;

/// Maximum size of a shard, in bytes.
const MAX_BYTES: u64 = 1 << 30;
/// Maximum number of rows per shard.
const MAX_ROWS: usize = 1_000_000;

/// One row of a shard.
#[derive(Debug, Deserialize)]
pub(super) struct ShardRow {
    pub(super) task_id: Digest,
    pub(super) messages: Vec<Message>,
    #[serde(default)]
    outputs: Vec<ShardOutput>,
}

#[derive(Debug, Deserialize)]
struct ShardOutput {
    path: String,
    blake3: Digest,
    size: u64,
}

/// Reads the rows of a shard.
///
/// # Errors
/// [`RunError::BadInput`] if the file cannot be read or is not a shard.
pub(super) fn read(path: &Path) -> Result<Vec<ShardRow>, RunError> {
    let wrong =
        |error: &dyn std::fmt::Display| RunError::BadInput(format!("{}: {error}", path.display()));
    let columns = ["task_id", "messages", "outputs"].map(str::to_owned);
    let lines = lines(path, Some(columns.to_vec())).map_err(|error| wrong(&error))?;
    let lines = lines
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    lines
        .map(|line| serde_json::from_slice(line).map_err(|error| wrong(&error)))
        .collect()
}

/// Reads a Parquet file as JSON Lines, with all columns or the given ones.
///
/// # Errors
/// The file cannot be read or is too large.
pub(crate) fn lines(path: &Path, columns: Option<Vec<String>>) -> Result<Vec<u8>, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let file = File::open(path).map_err(|error| text(&error))?;
    if file.metadata().map_err(|error| text(&error))?.len() > MAX_BYTES {
        return Err(format!("the file is larger than {} MiB", MAX_BYTES >> 20));
    }
    let reader = ParquetReader::new(file).with_columns(columns);
    let mut frame = reader.finish().map_err(|error| text(&error))?;
    if frame.height() > MAX_ROWS {
        return Err(format!("the file has more than {MAX_ROWS} rows"));
    }
    let mut lines = Vec::new();
    let writer = JsonWriter::new(&mut lines).with_json_format(JsonFormat::JsonLines);
    { writer }
        .finish(&mut frame)
        .map_err(|error| text(&error))?;
    Ok(lines)
}

/// The run folder whose `dataset/data` contains the shard.
pub(super) fn run_of(shard: &Path) -> Option<PathBuf> {
    let run = shard.parent()?.parent()?.parent()?;
    run.join("files").is_dir().then(|| run.to_owned())
}

impl ShardRow {
    /// Copies the outputs of the row from one store to another. Missing outputs are skipped.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(super) fn outputs(
        &self,
        from: Option<&ContentStore>,
        to: &ContentStore,
    ) -> Result<Vec<OutputFile>, RunError> {
        let mut found = Vec::new();
        for output in &self.outputs {
            let Some(Ok(bytes)) = from.map(|store| store.get(&output.blake3)) else {
                continue;
            };
            let id = to.put(&bytes)?;
            if id == output.blake3 {
                found.push(OutputFile {
                    path: output.path.clone(),
                    id,
                    size: output.size,
                });
            }
        }
        Ok(found)
    }
}
