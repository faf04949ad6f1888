//! Writes Parquet shards with zstd compression, small row groups and a page index. The output is deterministic.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use pybench_run::cores;

use crate::{DatasetError, Row, schema};

/// The `created_by` field of a shard. It is fixed, so that a library update changes the bytes only if it changes
/// the encoding.
const CREATED_BY: &str = "pybench-datasets (parquet-rs)";

/// Maximum rows, and bytes of their messages, per call to the writer. The writer checks the size of a row group
/// only between calls, and each call has a fixed cost.
const MAX_BATCH: (usize, usize) = (100, 1 << 20);

/// Settings for writing shards.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardSettings {
    /// Maximum rows per shard, at least 1.
    pub shard_rows: usize,
    /// Maximum rows per row group, at least 1.
    pub row_group_rows: usize,
    /// Encoded size in bytes after which a row group ends, at least 1.
    pub row_group_bytes: usize,
    /// zstd compression level, 1 to 22.
    pub zstd_level: i32,
}

impl Default for ShardSettings {
    fn default() -> Self {
        Self {
            shard_rows: 10_000,
            row_group_rows: 100,
            row_group_bytes: 32 << 20,
            zstd_level: 9,
        }
    }
}

/// Write rows as `<folder>/<split>-00000-of-000NN.parquet`, several shards in parallel. Without rows one empty
/// shard is written. Returns the paths in order.
pub fn write(
    folder: &Path,
    split: &str,
    rows: &[Row],
    settings: &ShardSettings,
) -> Result<Vec<PathBuf>, DatasetError> {
    let shards = SplitShards::new(folder, split, rows.len(), settings)?;
    let next = AtomicUsize::new(0);
    let work = || -> Result<(), DatasetError> {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= shards.count {
                return Ok(());
            }
            let from = index * shards.shard_rows;
            let to = (from + shards.shard_rows).min(rows.len());
            shards.write(index, &rows[from..to])?;
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..concurrency().min(shards.count))
            .map(|_| scope.spawn(work))
            .collect();
        workers.into_iter().try_for_each(join)
    })?;
    Ok((0..shards.count).map(|index| shards.path(index)).collect())
}

/// Number of shards written in parallel.
pub(crate) fn concurrency() -> usize {
    cores().min(4)
}

fn join<T>(
    result: std::thread::ScopedJoinHandle<'_, Result<T, DatasetError>>,
) -> Result<T, DatasetError> {
    // Propagate a panic of a worker.
    result
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Writes single shards of a split.
pub(crate) struct SplitShards {
    folder: PathBuf,
    split: String,
    properties: WriterProperties,
    batch_bytes: usize,
    shard_rows: usize,
    /// Total number of shards.
    pub(crate) count: usize,
}

impl SplitShards {
    pub(crate) fn new(
        folder: &Path,
        split: &str,
        rows: usize,
        settings: &ShardSettings,
    ) -> Result<Self, DatasetError> {
        let properties = properties(settings)?;
        Ok(Self {
            folder: folder.to_owned(),
            split: split.to_owned(),
            properties,
            batch_bytes: settings.row_group_bytes.min(MAX_BATCH.1),
            shard_rows: settings.shard_rows,
            count: rows.div_ceil(settings.shard_rows).max(1),
        })
    }

    fn path(&self, index: usize) -> PathBuf {
        let (split, count) = (&self.split, self.count);
        self.folder
            .join(format!("{split}-{index:05}-of-{count:05}.parquet"))
    }

    /// Write in batches, so that the columns of a shard are never in memory twice.
    fn write(&self, index: usize, rows: &[Row]) -> Result<PathBuf, DatasetError> {
        let mut shard = Shard::create(self.path(index), &self.properties)?;
        for batch in batches(rows, self.batch_bytes) {
            shard.write(batch)?;
        }
        shard.finish()
    }

    /// Like [`SplitShards::write`], with the same bytes, for rows that are made one by one. At most a batch of them
    /// is in memory. `visit` sees each batch that was written.
    pub(crate) fn stream(
        &self,
        index: usize,
        rows: impl Iterator<Item = Result<Row, DatasetError>>,
        mut visit: impl FnMut(&[Row]),
    ) -> Result<PathBuf, DatasetError> {
        let mut shard = Shard::create(self.path(index), &self.properties)?;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for row in rows {
            let row = row?;
            bytes += row.bytes();
            let is_full = batch.len() == MAX_BATCH.0 || bytes > self.batch_bytes;
            if is_full && !batch.is_empty() {
                shard.write(&batch)?;
                visit(&batch);
                batch.clear();
                bytes = row.bytes();
            }
            batch.push(row);
        }
        if !batch.is_empty() {
            shard.write(&batch)?;
            visit(&batch);
        }
        shard.finish()
    }
}

/// A shard that is being written.
struct Shard {
    path: PathBuf,
    writer: ArrowWriter<File>,
}

impl Shard {
    fn create(path: PathBuf, properties: &WriterProperties) -> Result<Self, DatasetError> {
        let file = File::create_new(&path).map_err(DatasetError::io(&path))?;
        let writer = ArrowWriter::try_new(file, Arc::new(schema()), Some(properties.clone()));
        let writer = writer.map_err(DatasetError::parquet(&path))?;
        Ok(Self { path, writer })
    }

    fn write(&mut self, batch: &[Row]) -> Result<(), DatasetError> {
        let written = self.writer.write(&crate::schema::batch(batch)?);
        written.map_err(DatasetError::parquet(&self.path))
    }

    fn finish(self) -> Result<PathBuf, DatasetError> {
        let file = self.writer.into_inner();
        let file = file.map_err(DatasetError::parquet(&self.path))?;
        file.sync_all().map_err(DatasetError::io(&self.path))?;
        Ok(self.path)
    }
}

/// The rows in batches of at most `max_bytes` bytes. A larger row is a batch of its own.
fn batches(rows: &[Row], max_bytes: usize) -> impl Iterator<Item = &[Row]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let (mut count, mut bytes) = (0, 0);
        for row in rest.iter().take(MAX_BATCH.0) {
            bytes += row.bytes();
            if count > 0 && bytes > max_bytes {
                break;
            }
            count += 1;
        }
        let (batch, after) = rest.split_at(count);
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}

/// Writes the shards of a split row by row, several shards in parallel. The rows of unfinished shards are in
/// memory.
pub struct ShardWriter {
    shards: Arc<SplitShards>,
    pending: Vec<Row>,
    /// Number of shards started.
    started: usize,
    writing: VecDeque<JoinHandle<Result<PathBuf, DatasetError>>>,
    done: Vec<PathBuf>,
}

impl ShardWriter {
    /// Create a writer for exactly `rows` rows. File names contain the number of shards, so the number of rows must
    /// be known in advance.
    ///
    /// # Errors
    /// [`DatasetError::Setting`] if the settings are invalid.
    pub fn new(
        folder: &Path,
        split: &str,
        rows: usize,
        settings: &ShardSettings,
    ) -> Result<Self, DatasetError> {
        Ok(Self {
            shards: Arc::new(SplitShards::new(folder, split, rows, settings)?),
            pending: Vec::new(),
            started: 0,
            writing: VecDeque::new(),
            done: Vec::new(),
        })
    }

    /// Add the next row.
    ///
    /// # Errors
    /// I/O errors of this shard or an earlier one.
    pub fn add(&mut self, row: Row) -> Result<(), DatasetError> {
        self.pending.push(row);
        match self.pending.len() < self.shards.shard_rows {
            true => Ok(()),
            false => self.start_shard(),
        }
    }

    /// Start writing the pending rows in a new thread. Waits if too many shards are being written.
    fn start_shard(&mut self) -> Result<(), DatasetError> {
        if self.writing.len() >= concurrency() {
            self.finish_oldest()?;
        }
        let (shards, index) = (self.shards.clone(), self.started);
        let rows = std::mem::take(&mut self.pending);
        let writing = std::thread::spawn(move || shards.write(index, &rows));
        self.writing.push_back(writing);
        self.started += 1;
        Ok(())
    }

    fn finish_oldest(&mut self) -> Result<(), DatasetError> {
        if let Some(first) = self.writing.pop_front() {
            let written = first.join();
            let written = written.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            self.done.push(written?);
        }
        Ok(())
    }

    /// Write the remaining rows and return the paths in order. Without rows one empty shard is written.
    ///
    /// # Errors
    /// I/O errors.
    pub fn finish(mut self) -> Result<Vec<PathBuf>, DatasetError> {
        if !self.pending.is_empty() || self.started == 0 {
            self.start_shard()?;
        }
        while !self.writing.is_empty() {
            self.finish_oldest()?;
        }
        Ok(std::mem::take(&mut self.done))
    }
}

/// Waits for all threads, so that nothing is written after the writer is dropped.
impl Drop for ShardWriter {
    fn drop(&mut self) {
        for writing in self.writing.drain(..) {
            let _ = writing.join(); // the error was returned before, or the caller gave up
        }
    }
}

pub(crate) fn properties(settings: &ShardSettings) -> Result<WriterProperties, DatasetError> {
    let ShardSettings {
        shard_rows,
        row_group_rows,
        row_group_bytes,
        ..
    } = *settings;
    if shard_rows == 0 || row_group_rows == 0 || row_group_bytes == 0 {
        return Err(DatasetError::Setting(
            "shard.shard_rows and shard.row_group_rows must be at least 1".into(),
        ));
    }
    let level = ZstdLevel::try_new(settings.zstd_level)
        .map_err(|error| DatasetError::Setting(format!("shard.zstd_level: {error}")))?;
    Ok(WriterProperties::builder()
        .set_created_by(CREATED_BY.to_owned())
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(Some(row_group_rows))
        .set_max_row_group_bytes(Some(row_group_bytes))
        .set_statistics_enabled(EnabledStatistics::Page)
        // No content-defined chunking: if a chunk ends at the first value of a row group, parquet 60.1 writes an
        // empty page, and pyarrow cannot read the column ("expected length 100 but got length 0").
        .build())
}
