//! Rows of Parquet: only the row groups that have them are read.

use std::fs::File;

use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaData;

use super::super::parquet::{cell, date};
use super::{MAX_COLUMNS, RowRange, TablePage, shown, unreadable};

/// Maximum unpacked size of the row groups of a page by the metadata, bytes.
const MAX_UNPACKED: i64 = 1 << 30;

/// Rows of a file.
///
/// # Errors
/// The file cannot be read, or its row groups are too large.
pub(super) fn page(file: File, rows: RowRange) -> Result<TablePage, String> {
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(unreadable)?;
    let total = u64::try_from(builder.metadata().file_metadata().num_rows()).unwrap_or(0);
    let width = builder.schema().fields().len();
    let names = builder.schema().fields().iter().take(MAX_COLUMNS);
    let mut page = TablePage {
        columns: names.map(|field| field.name().clone()).collect(),
        total: Some(total),
        cut: width > MAX_COLUMNS,
        ..TablePage::default()
    };
    page.bound();
    if rows.from >= total || rows.count == 0 {
        return Ok(page);
    }
    let (groups, offset) = groups(builder.metadata(), rows)?;
    let roots = 0..width.min(MAX_COLUMNS);
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
    let reader = builder
        .with_row_groups(groups)
        .with_projection(mask)
        .with_offset(offset)
        .with_limit(rows.count)
        // Many rows can share one long text of a dictionary.
        .with_batch_size(1)
        .build();
    for batch in reader.map_err(unreadable)? {
        let batch = batch.map_err(unreadable)?;
        for row in 0..batch.num_rows() {
            page.push(cells(&batch, row));
        }
    }
    Ok(page)
}

/// The row groups that have these rows, and how many rows come before these in them.
fn groups(metadata: &ParquetMetaData, rows: RowRange) -> Result<(Vec<usize>, usize), String> {
    let end = rows.from.saturating_add(rows.count as u64);
    let (mut groups, mut offset, mut unpacked, mut start) = (Vec::new(), 0, 0_i64, 0_u64);
    for (index, group) in metadata.row_groups().iter().enumerate() {
        let next = start.saturating_add(u64::try_from(group.num_rows()).map_err(unreadable)?);
        if next > rows.from && start < end {
            if groups.is_empty() {
                offset = usize::try_from(rows.from - start).map_err(unreadable)?;
            }
            groups.push(index);
            unpacked = unpacked.saturating_add(group.total_byte_size());
        }
        start = next;
    }
    match unpacked > MAX_UNPACKED {
        true => Err(format!(
            "the row groups of these rows unpack to more than {} MiB",
            MAX_UNPACKED >> 20
        )),
        false => Ok((groups, offset)),
    }
}

fn cells(batch: &RecordBatch, row: usize) -> Vec<Option<String>> {
    let columns = batch.columns().iter();
    columns.map(|column| value(column.as_ref(), row)).collect()
}

/// A value as text; `None` if it is missing.
fn value(array: &dyn Array, row: usize) -> Option<String> {
    let value = match array.data_type() {
        DataType::Timestamp(_, Some(_)) if array.is_valid(row) => {
            let time = shown(&date(array, row).ok()?)?;
            return Some(format!("{time} UTC"));
        }
        _ => cell(array, row, 0),
    };
    match value {
        Ok(value) => shown(&value),
        Err(reason) => Some(format!("({reason})")),
    }
}
