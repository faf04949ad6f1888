//! Trajectories in our shards: words by task id, and outputs where a content store holds them.

use std::fs::File;
use std::path::{Path, PathBuf};

use polars::prelude::{JsonFormat, JsonWriter, ParquetReader, SerReader, SerWriter};
use pybench::id::Digest;
use pybench::run::{ContentStore, RunError};
use pybench::trajectory::{Message, OutputFile};
use serde::Deserialize;

/// Largest shard, bytes.
const MOST_BYTES: u64 = 1 << 30;
/// Most rows of a shard.
const MOST_ROWS: usize = 1_000_000;

/// One row.
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

/// The rows of a shard.
///
/// # Errors
/// [`RunError::BadInput`] with the file and what is wrong.
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

/// The rows of a Parquet file as JSON lines; of all columns, or of those.
///
/// # Errors
/// What is wrong with it, in words.
pub(in crate::eval) fn lines(path: &Path, columns: Option<Vec<String>>) -> Result<Vec<u8>, String> {
    let said = |error: &dyn std::fmt::Display| error.to_string();
    let file = File::open(path).map_err(|error| said(&error))?;
    if file.metadata().map_err(|error| said(&error))?.len() > MOST_BYTES {
        return Err("larger than any shard".to_owned());
    }
    let reader = ParquetReader::new(file).with_columns(columns);
    let mut frame = reader.finish().map_err(|error| said(&error))?;
    if frame.height() > MOST_ROWS {
        return Err("more rows than any shard".to_owned());
    }
    let mut lines = Vec::new();
    let writer = JsonWriter::new(&mut lines).with_json_format(JsonFormat::JsonLines);
    { writer }
        .finish(&mut frame)
        .map_err(|error| said(&error))?;
    Ok(lines)
}

/// The run folder whose `dataset/data` holds that shard.
pub(super) fn run_of(shard: &Path) -> Option<PathBuf> {
    let run = shard.parent()?.parent()?.parent()?;
    run.join("files").is_dir().then(|| run.to_owned())
}

impl ShardRow {
    /// Its outputs, copied from one store to another; those that are not there are left out.
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
