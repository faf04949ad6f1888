//! Parquet shards: zstd, small row groups, page index, content-defined chunking; the same rows
//! give the same bytes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{CdcOptions, EnabledStatistics, WriterProperties};

use crate::{DatasetError, Row, schema};

/// What a shard says of its writer: fixed, so that an update of a library does not change bytes
/// where it does not change the encoding.
const CREATED_BY: &str = "pybench-datasets (parquet-rs)";

/// Rows handed to the writer at a time: it looks at the size of a row group only in between.
const BATCH_ROWS: usize = 10;

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

/// Write rows as `<folder>/<split>-00000-of-000NN.parquet`; no rows give one empty shard. Returns
/// the paths, in order.
pub fn write(
    folder: &Path,
    split: &str,
    rows: &[Row],
    settings: &ShardSettings,
) -> Result<Vec<PathBuf>, DatasetError> {
    let mut writer = Writer::new(folder, split, rows.len(), settings)?;
    for batch in rows.chunks(BATCH_ROWS) {
        writer.write(batch)?;
    }
    writer.finish()
}

/// Writes the shards of a split, row after row.
pub struct Writer {
    folder: PathBuf,
    split: String,
    properties: WriterProperties,
    shard_rows: usize,
    /// Shards there will be.
    count: usize,
    open: Option<(ArrowWriter<File>, PathBuf, usize)>,
    waiting: Vec<Row>,
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
            folder: folder.to_owned(),
            split: split.to_owned(),
            properties: properties(settings)?,
            shard_rows: settings.shard_rows,
            count: rows.div_ceil(settings.shard_rows).max(1),
            open: None,
            waiting: Vec::new(),
            done: Vec::new(),
        })
    }

    /// The next row.
    ///
    /// # Errors
    /// Failures of the disk.
    pub fn add(&mut self, row: Row) -> Result<(), DatasetError> {
        self.waiting.push(row);
        match self.waiting.len() < BATCH_ROWS {
            true => Ok(()),
            false => self.flush(),
        }
    }

    fn flush(&mut self) -> Result<(), DatasetError> {
        let waiting = std::mem::take(&mut self.waiting);
        self.write(&waiting)
    }

    /// A batch at a time: the columns of a shard are never in memory twice.
    fn write(&mut self, mut rows: &[Row]) -> Result<(), DatasetError> {
        while !rows.is_empty() {
            let shard_rows = self.shard_rows;
            let (writer, path, there) = self.shard()?;
            let (now, rest) = rows.split_at(rows.len().min(shard_rows - *there));
            let batch = crate::schema::batch(now)?;
            writer.write(&batch).map_err(DatasetError::parquet(path))?;
            *there += now.len();
            let full = *there == shard_rows;
            rows = rest;
            if full {
                self.close()?;
            }
        }
        Ok(())
    }

    /// The shard that is open; the next one where none is.
    fn shard(&mut self) -> Result<&mut (ArrowWriter<File>, PathBuf, usize), DatasetError> {
        let shard = match self.open.take() {
            Some(shard) => shard,
            None => {
                let (split, index, count) = (&self.split, self.done.len(), self.count);
                let name = format!("{split}-{index:05}-of-{count:05}.parquet");
                let path = self.folder.join(name);
                let file = File::create_new(&path).map_err(DatasetError::io(&path))?;
                let properties = Some(self.properties.clone());
                let writer = ArrowWriter::try_new(file, Arc::new(schema()), properties)
                    .map_err(DatasetError::parquet(&path))?;
                (writer, path, 0)
            }
        };
        Ok(self.open.insert(shard))
    }

    fn close(&mut self) -> Result<(), DatasetError> {
        let Some((writer, path, _)) = self.open.take() else {
            return Ok(());
        };
        let file = writer.into_inner().map_err(DatasetError::parquet(&path))?;
        file.sync_all().map_err(DatasetError::io(&path))?;
        self.done.push(path);
        Ok(())
    }

    /// The paths, in order; without rows there is one empty shard.
    ///
    /// # Errors
    /// Failures of the disk.
    pub fn finish(mut self) -> Result<Vec<PathBuf>, DatasetError> {
        self.flush()?;
        if self.done.is_empty() {
            self.shard()?;
        }
        self.close()?;
        Ok(self.done)
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
        .set_content_defined_chunking(Some(CdcOptions::default()))
        .build())
}
