//! Shards read back. They may come from anywhere: whatever is broken, huge or of another shape is
//! refused with the file, the column and the row named, and nothing larger than a batch is held.

mod ahead;
mod columns;
mod pages;

use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::file::metadata::ParquetMetaData;

use crate::{DatasetError, Row};

/// Rows decoded at once.
const BATCH: usize = 32;
/// Most shards of one dataset.
const SHARDS: usize = 100_000;
/// Most bytes of one row group, decoded.
const GROUP: i64 = 4 << 30;
/// Most rows of one row group.
const GROUP_ROWS: i64 = 10_000_000;
/// Most bytes of one column of a batch, or of one page.
const COLUMN: usize = 1 << 30;

/// A shard and the split it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The file.
    pub path: PathBuf,
    /// What its name begins with: `train`, `test`.
    pub split: String,
}

/// The shards of a dataset: `data/*.parquet` below the folder, or `*.parquet` in it; train first, then
/// the other splits by name.
///
/// # Errors
/// [`DatasetError::Setting`] where there is none, or more than anybody writes.
pub fn shards(folder: &Path) -> Result<Vec<Shard>, DatasetError> {
    let data = folder.join("data");
    let place = if data.is_dir() { data } else { folder.into() };
    let mut shards = Vec::new();
    for entry in fs::read_dir(&place).map_err(DatasetError::io(&place))? {
        let path = entry.map_err(DatasetError::io(&place))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let Some(stem) = name.and_then(|name| name.strip_suffix(".parquet")) else {
            continue;
        };
        let split = stem.split('-').next().unwrap_or(stem).to_owned();
        shards.push(Shard { path, split });
        if shards.len() > SHARDS {
            let place = place.display();
            return Err(DatasetError::Setting(format!(
                "{place}: more than {SHARDS} shards"
            )));
        }
    }
    shards.sort_by_key(|shard| {
        (
            shard.split != "train",
            shard.split.clone(),
            shard.path.clone(),
        )
    });
    match shards.is_empty() {
        true => Err(DatasetError::Setting(format!(
            "{}: no shards here: a dataset has data/*.parquet",
            folder.display()
        ))),
        false => Ok(shards),
    }
}

/// Every row of a dataset with its split, in the order of [`shards`]; a few rows are decoded ahead on each
/// core.
///
/// # Errors
/// As [`shards`]; what is wrong with a shard comes among its rows, and ends it.
pub fn dataset(
    folder: &Path,
) -> Result<impl Iterator<Item = Result<(String, Row), DatasetError>> + use<>, DatasetError> {
    Ok(ahead::Ahead::new(shards(folder)?))
}

/// The rows of one shard.
pub struct Rows {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    /// Number of the next batch's first row, from 1.
    first: usize,
    ready: std::vec::IntoIter<Row>,
    ended: bool,
}

/// Open a shard.
///
/// # Errors
/// [`DatasetError::Shard`]: no Parquet, too large, or without a column that rows need.
pub fn rows(path: &Path) -> Result<Rows, DatasetError> {
    Opened::new(path)?.rows(None)
}

/// A shard that can be read, as far as it says of itself.
struct Opened {
    path: PathBuf,
    file: Arc<File>,
    metadata: Arc<ParquetMetaData>,
    levels: FieldLevels,
    context: pages::Context,
}

impl Opened {
    fn new(path: &Path) -> Result<Self, DatasetError> {
        let file = File::open(path).map_err(DatasetError::io(path))?;
        let broken = broken(path);
        let loaded = guarded(|| ArrowReaderMetadata::load(&file, ArrowReaderOptions::default()));
        let metadata = loaded
            .and_then(|made| made.map_err(|error| error.to_string()))
            .map_err(|reason| broken(format!("no Parquet that can be read: {reason}")))?;
        bounded(metadata.metadata()).map_err(&broken)?;
        columns::check(metadata.schema()).map_err(&broken)?;
        let levels = parquet_to_arrow_field_levels(
            metadata.parquet_schema(),
            ProjectionMask::all(),
            Some(metadata.schema().fields()),
        );
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(file),
            metadata: metadata.metadata().clone(),
            levels: levels.map_err(|error| broken(error.to_string()))?,
            context: pages::Context::new().map_err(DatasetError::io(path))?,
        })
    }

    fn groups(&self) -> usize {
        self.metadata.num_row_groups()
    }

    /// All rows, or those of one row group.
    fn rows(&self, group: Option<usize>) -> Result<Rows, DatasetError> {
        let wanted = group.map_or(0..self.groups(), |group| group..group + 1);
        let before = self.metadata.row_groups().iter().take(wanted.start);
        let before: i64 = before.map(|group| group.num_rows()).sum();
        let groups = pages::Groups {
            file: self.file.clone(),
            metadata: self.metadata.clone(),
            wanted,
            context: self.context.clone(),
        };
        let reader = guarded(|| {
            ParquetRecordBatchReader::try_new_with_row_groups(&self.levels, &groups, BATCH, None)
        });
        let reader = reader
            .and_then(|made| made.map_err(|error| error.to_string()))
            .map_err(broken(&self.path))?;
        Ok(Rows {
            path: self.path.clone(),
            reader,
            // `bounded` has seen to it that no group has fewer than no rows.
            first: 1 + usize::try_from(before).unwrap_or_default(),
            ready: Vec::new().into_iter(),
            ended: false,
        })
    }
}

fn broken(path: &Path) -> impl Fn(String) -> DatasetError + '_ {
    |reason| DatasetError::Shard {
        path: path.to_owned(),
        reason,
    }
}

/// A decoder that panics over a broken file is a broken file.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| "its decoder gave up on it".to_owned())
}

/// Whether what the file says of its sizes is within bounds.
fn bounded(metadata: &ParquetMetaData) -> Result<(), String> {
    for (number, group) in metadata.row_groups().iter().enumerate() {
        if group.num_rows() > GROUP_ROWS || group.num_rows() < 0 {
            let rows = group.num_rows();
            return Err(format!(
                "row group {number} claims {rows} rows; at most {GROUP_ROWS} are read"
            ));
        }
        for column in group.columns() {
            if column.uncompressed_size() > GROUP || column.uncompressed_size() < 0 {
                return Err(format!(
                    "column {}: row group {number} claims {} bytes; at most {GROUP} are read",
                    column.column_path().string(),
                    column.uncompressed_size(),
                ));
            }
        }
    }
    Ok(())
}

impl Rows {
    fn batch(&mut self) -> Option<Result<Vec<Row>, DatasetError>> {
        let reader = &mut self.reader;
        let next = guarded(|| reader.next());
        let batch = match next {
            Ok(None) => return None,
            Ok(Some(Ok(batch))) => Ok(batch),
            Ok(Some(Err(error))) => Err(error.to_string()),
            Err(reason) => Err(reason),
        };
        let rows = batch.and_then(|batch| {
            let sizes = batch.columns().iter().zip(batch.schema_ref().fields());
            for (column, field) in sizes {
                let size = column.get_array_memory_size();
                if size > COLUMN {
                    return Err(format!(
                        "column {}: {BATCH} rows take {size} bytes; at most {COLUMN} are read",
                        field.name()
                    ));
                }
            }
            let rows = columns::rows(&batch, self.first);
            self.first += batch.num_rows();
            rows
        });
        Some(rows.map_err(|reason| DatasetError::Shard {
            path: self.path.clone(),
            reason,
        }))
    }
}

impl Iterator for Rows {
    type Item = Result<Row, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(row) = self.ready.next() {
                return Some(Ok(row));
            }
            if self.ended {
                return None;
            }
            match self.batch() {
                Some(Ok(rows)) => self.ready = rows.into_iter(),
                Some(Err(error)) => {
                    self.ended = true;
                    return Some(Err(error));
                }
                None => self.ended = true,
            }
        }
    }
}
