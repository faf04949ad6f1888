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
    let properties = properties(settings)?;
    let count = rows.len().div_ceil(settings.shard_rows).max(1);
    let mut rest = rows;
    let mut paths = Vec::with_capacity(count);
    for index in 0..count {
        let (shard, tail) = rest.split_at(rest.len().min(settings.shard_rows));
        rest = tail;
        let path = folder.join(format!("{split}-{index:05}-of-{count:05}.parquet"));
        write_shard(&path, shard, properties.clone())?;
        paths.push(path);
    }
    Ok(paths)
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

fn write_shard(
    path: &Path,
    rows: &[Row],
    properties: WriterProperties,
) -> Result<(), DatasetError> {
    let file = File::create_new(path).map_err(DatasetError::io(path))?;
    let schema = Arc::new(schema());
    let mut writer = ArrowWriter::try_new(file, schema, Some(properties))
        .map_err(DatasetError::parquet(path))?;
    // A batch at a time: the columns of a shard are never in memory twice.
    for rows in rows.chunks(BATCH_ROWS) {
        let batch = crate::schema::batch(rows)?;
        writer.write(&batch).map_err(DatasetError::parquet(path))?;
    }
    let file = writer.into_inner().map_err(DatasetError::parquet(path))?;
    file.sync_all().map_err(DatasetError::io(path))
}
