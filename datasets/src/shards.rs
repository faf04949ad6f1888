//! Parquet shards: zstd, small row groups, page index; the same rows give the same bytes.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use pybench::run::cores;

use crate::{DatasetError, Row, schema};

/// What a shard says of its writer: fixed, so that an update of a library does not change bytes
/// where it does not change the encoding.
const CREATED_BY: &str = "pybench-datasets (parquet-rs)";

/// Rows, and bytes of their messages, that are handed to the writer at most at a time: it looks at the size of
/// a row group only in between, and each time costs as much as some rows.
const BATCH: (usize, usize) = (100, 1 << 20);

/// How shards are written.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardSettings {
    /// Most rows of one shard, at least 1.
    pub shard_rows: usize,
    /// Most rows of one row group, at least 1.
    pub row_group_rows: usize,
    /// Encoded bytes after which a row group ends, at least 1.
    pub row_group_bytes: usize,
    /// zstd level, 1 to 22.
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

/// Write rows as `<folder>/<split>-00000-of-000NN.parquet`, several at a time; no rows give one empty
/// shard. Returns the paths, in order.
pub fn write(
    folder: &Path,
    split: &str,
    rows: &[Row],
    settings: &ShardSettings,
) -> Result<Vec<PathBuf>, DatasetError> {
    let shards = Shards::new(folder, split, rows.len(), settings)?;
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
        let workers: Vec<_> = (0..at_once().min(shards.count))
            .map(|_| scope.spawn(work))
            .collect();
        workers.into_iter().try_for_each(joined)
    })?;
    Ok((0..shards.count).map(|index| shards.path(index)).collect())
}

/// Shards that are written at the same time; each holds its rows in memory.
fn at_once() -> usize {
    cores().min(4)
}

fn joined<T>(
    result: std::thread::ScopedJoinHandle<'_, Result<T, DatasetError>>,
) -> Result<T, DatasetError> {
    // A panic of a worker is ours: it goes on here.
    result
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The shards of a split, each by itself.
struct Shards {
    folder: PathBuf,
    split: String,
    properties: WriterProperties,
    batch_bytes: usize,
    shard_rows: usize,
    /// Shards there will be.
    count: usize,
}

impl Shards {
    fn new(
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
            batch_bytes: settings.row_group_bytes.min(BATCH.1),
            shard_rows: settings.shard_rows,
            count: rows.div_ceil(settings.shard_rows).max(1),
        })
    }

    fn path(&self, index: usize) -> PathBuf {
        let (split, count) = (&self.split, self.count);
        self.folder
            .join(format!("{split}-{index:05}-of-{count:05}.parquet"))
    }

    /// A batch at a time: the columns of a shard are never in memory twice.
    fn write(&self, index: usize, rows: &[Row]) -> Result<PathBuf, DatasetError> {
        let path = self.path(index);
        let wrap = || DatasetError::parquet(&path);
        let file = File::create_new(&path).map_err(DatasetError::io(&path))?;
        let properties = Some(self.properties.clone());
        let mut writer =
            ArrowWriter::try_new(file, Arc::new(schema()), properties).map_err(wrap())?;
        for batch in batches(rows, self.batch_bytes) {
            writer
                .write(&crate::schema::batch(batch)?)
                .map_err(wrap())?;
        }
        let file = writer.into_inner().map_err(wrap())?;
        file.sync_all().map_err(DatasetError::io(&path))?;
        Ok(path)
    }
}

/// The rows in pieces of at most so many bytes; one row is a piece, however large.
fn batches(rows: &[Row], most_bytes: usize) -> impl Iterator<Item = &[Row]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let (mut count, mut bytes) = (0, 0);
        for row in rest.iter().take(BATCH.0) {
            bytes += row.bytes();
            if count > 0 && bytes > most_bytes {
                break;
            }
            count += 1;
        }
        let (batch, after) = rest.split_at(count);
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}

/// Writes the shards of a split row after row, and several shards at a time: the rows of those are in memory.
pub struct Writer {
    shards: Arc<Shards>,
    waiting: Vec<Row>,
    /// Shards that were begun.
    begun: usize,
    writing: VecDeque<JoinHandle<Result<PathBuf, DatasetError>>>,
    done: Vec<PathBuf>,
}

impl Writer {
    /// For that many rows; a name says how many shards there are, so their number has to be known.
    ///
    /// # Errors
    /// [`DatasetError::Setting`] for settings that cannot be used.
    pub fn new(
        folder: &Path,
        split: &str,
        rows: usize,
        settings: &ShardSettings,
    ) -> Result<Self, DatasetError> {
        Ok(Self {
            shards: Arc::new(Shards::new(folder, split, rows, settings)?),
            waiting: Vec::new(),
            begun: 0,
            writing: VecDeque::new(),
            done: Vec::new(),
        })
    }

    /// The next row.
    ///
    /// # Errors
    /// Failures of the disk, of this shard or an earlier one.
    pub fn add(&mut self, row: Row) -> Result<(), DatasetError> {
        self.waiting.push(row);
        match self.waiting.len() < self.shards.shard_rows {
            true => Ok(()),
            false => self.begin(),
        }
    }

    /// Write the rows that wait, once there is a place for it.
    fn begin(&mut self) -> Result<(), DatasetError> {
        if self.writing.len() >= at_once() {
            self.end_first()?;
        }
        let (shards, index) = (self.shards.clone(), self.begun);
        let rows = std::mem::take(&mut self.waiting);
        let writing = std::thread::spawn(move || shards.write(index, &rows));
        self.writing.push_back(writing);
        self.begun += 1;
        Ok(())
    }

    fn end_first(&mut self) -> Result<(), DatasetError> {
        if let Some(first) = self.writing.pop_front() {
            let written = first.join();
            let written = written.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            self.done.push(written?);
        }
        Ok(())
    }

    /// The paths, in order; without rows there is one empty shard.
    ///
    /// # Errors
    /// Failures of the disk.
    pub fn finish(mut self) -> Result<Vec<PathBuf>, DatasetError> {
        if !self.waiting.is_empty() || self.begun == 0 {
            self.begin()?;
        }
        while !self.writing.is_empty() {
            self.end_first()?;
        }
        Ok(std::mem::take(&mut self.done))
    }
}

/// Nobody writes into the folder once the writer is gone.
impl Drop for Writer {
    fn drop(&mut self) {
        for writing in self.writing.drain(..) {
            let _ = writing.join(); // an error was told before, or the caller gives up
        }
    }
}

fn properties(settings: &ShardSettings) -> Result<WriterProperties, DatasetError> {
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
        // No content-defined chunks: where one ends at the first value of a row group, parquet 60.1 writes a page
        // without values, and Arrow's own reader in Python refuses the column ("expected length 100 but got length 0").
        .build())
}
