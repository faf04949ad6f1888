//! Reads our shards. Shards are untrusted input: files that are corrupt, too large or have a different schema are
//! rejected with an error that names the file, the column and the row. Rows are decoded in small batches.

mod columns;
mod prefetch;
mod views;

use std::fs::{self, File};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::file::metadata::ParquetMetaData;

use pybench_files::open_regular;

use crate::pages::{self, check_sizes};
use crate::{DatasetError, Row};

/// Rows decoded at a time.
const BATCH: usize = 32;
/// Maximum number of shards in a dataset.
const MAX_SHARDS: usize = 100_000;
/// Maximum size of the columns of a batch, and of the texts of its rows, in bytes.
const MAX_BATCH_BYTES: usize = 128 << 20;

/// A shard file and its split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    pub path: PathBuf,
    /// The first part of the file name: `train` or `test`.
    pub split: String,
}

/// List the shards of a dataset: `data/*.parquet` in the folder, or `*.parquet`. The train split comes first, then
/// the other splits by name.
///
/// # Errors
/// [`DatasetError::Setting`] if there are no shards, or too many.
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
        if shards.len() > MAX_SHARDS {
            let place = place.display();
            return Err(DatasetError::Setting(format!(
                "{place}: more than {MAX_SHARDS} shards"
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
            "{}: not a dataset: no data/*.parquet files",
            folder.display()
        ))),
        false => Ok(shards),
    }
}

/// Iterate over all rows of a dataset with their splits, in the order of [`shards`]. Background threads decode a few
/// batches ahead.
///
/// # Errors
/// As [`shards`]. If a shard is invalid, the iterator yields one error in place of its remaining rows, and continues
/// with the next shard.
pub fn dataset(
    folder: &Path,
) -> Result<impl Iterator<Item = Result<(String, Row), DatasetError>> + use<>, DatasetError> {
    Ok(prefetch::Prefetcher::new(shards(folder)?))
}

/// Iterator over the rows of one shard.
pub struct Rows {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    /// Limits the pages that a batch needs.
    pages: pages::PageBudget,
    /// Number of the first row of the next batch, from 1.
    first: usize,
    ready: std::vec::IntoIter<Row>,
    ended: bool,
}

/// Open a shard.
///
/// # Errors
/// [`DatasetError::Shard`] if the file is not Parquet, is too large, or lacks a required column.
pub fn rows(path: &Path) -> Result<Rows, DatasetError> {
    OpenShard::new(path)?.rows(None)
}

/// An open shard whose metadata and schema have been checked.
struct OpenShard {
    path: PathBuf,
    file: Arc<File>,
    metadata: Arc<ParquetMetaData>,
    levels: FieldLevels,
    context: pages::Context,
}

impl OpenShard {
    fn new(path: &Path) -> Result<Self, DatasetError> {
        let file = open_regular(path).map_err(DatasetError::io(path))?;
        let invalid = invalid(path);
        let loaded =
            catch_panic(|| ArrowReaderMetadata::load(&file, ArrowReaderOptions::default()));
        let metadata = loaded
            .and_then(|made| made.map_err(|error| error.to_string()))
            .map_err(|reason| invalid(format!("not a readable Parquet file: {reason}")))?;
        check_sizes(metadata.metadata()).map_err(&invalid)?;
        columns::check(metadata.schema()).map_err(&invalid)?;
        let names = crate::schema();
        let names = names.fields().iter().map(|field| field.name().as_str());
        let levels = parquet_to_arrow_field_levels(
            metadata.parquet_schema(),
            ProjectionMask::columns(metadata.parquet_schema(), names),
            Some(&views::with_views(metadata.schema().fields())),
        );
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(file),
            metadata: metadata.metadata().clone(),
            levels: levels.map_err(|error| invalid(error.to_string()))?,
            context: pages::Context::new().map_err(DatasetError::io(path))?,
        })
    }

    fn groups(&self) -> usize {
        self.metadata.num_row_groups()
    }

    /// Iterate over all rows, or over the rows of one row group.
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
        let reader = catch_panic(|| {
            ParquetRecordBatchReader::try_new_with_row_groups(&self.levels, &groups, BATCH, None)
        });
        let reader = reader
            .and_then(|made| made.map_err(|error| error.to_string()))
            .map_err(invalid(&self.path))?;
        Ok(Rows {
            path: self.path.clone(),
            reader,
            pages: self.context.budget.clone(),
            // `check_sizes` rejects negative numbers of rows.
            first: 1 + usize::try_from(before).unwrap_or_default(),
            ready: Vec::new().into_iter(),
            ended: false,
        })
    }
}

fn invalid(path: &Path) -> impl Fn(String) -> DatasetError + '_ {
    |reason| DatasetError::Shard {
        path: path.to_owned(),
        reason,
    }
}

/// Run `work` and turn a panic into an error: the decoder may panic on corrupt files.
fn catch_panic<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work))
        .map_err(|_| "the decoder panicked; the file is corrupt".to_owned())
}

/// Check the memory that a batch takes, and that its texts will take once each row has its own.
fn check_batch(batch: &RecordBatch) -> Result<(), String> {
    let texts: usize = batch.columns().iter().map(views::text_bytes).sum();
    let size = batch.get_array_memory_size().max(texts);
    match size > MAX_BATCH_BYTES {
        true => Err(format!(
            "{} rows take {size} bytes; the limit is {MAX_BATCH_BYTES}",
            batch.num_rows()
        )),
        false => Ok(()),
    }
}

impl Rows {
    fn next_batch(&mut self) -> Option<Result<Vec<Row>, DatasetError>> {
        self.pages.reset();
        let reader = &mut self.reader;
        let next = catch_panic(|| reader.next());
        let batch = match next {
            Ok(None) => return None,
            Ok(Some(Ok(batch))) => Ok(batch),
            Ok(Some(Err(error))) => Err(error.to_string()),
            Err(reason) => Err(reason),
        };
        let rows = batch.and_then(|batch| {
            check_batch(&batch)?;
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
            match self.next_batch() {
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
