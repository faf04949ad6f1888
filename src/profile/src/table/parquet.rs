//! Reads Parquet with polars.

use std::io::Cursor;

use polars::prelude::{AnyValue, DataFrame, ParquetReader, SerReader};
use serde::Deserialize;

use super::{Cell, MAX_CELLS, MAX_COLUMNS, MAX_ROWS, RawTable};

/// Maximum unpacked size by the metadata, in bytes.
const MAX_UNPACKED: u64 = 256 << 20;

pub(super) fn read(bytes: &[u8]) -> Result<RawTable, String> {
    let unreadable = |e: polars::error::PolarsError| format!("not a readable Parquet file: {e}");
    let mut reader = ParquetReader::new(Cursor::new(bytes));
    let metadata = reader.get_metadata().map_err(unreadable)?.clone();
    let (rows, columns) = (metadata.num_rows, metadata.schema().columns().len());
    let unpacked: u64 = metadata
        .row_groups
        .iter()
        .map(|group| group.total_byte_size() as u64)
        .sum();
    if rows > MAX_ROWS || columns > MAX_COLUMNS || rows.saturating_mul(columns) > MAX_CELLS {
        return Err(format!("{rows} rows and {columns} columns are too many"));
    }
    if unpacked > MAX_UNPACKED {
        return Err(format!("unpacks to more than {} MiB", MAX_UNPACKED >> 20));
    }
    let entries = metadata.key_value_metadata().iter().flatten();
    let pandas = entries
        .filter(|entry| entry.key == "pandas")
        .find_map(|entry| entry.value.as_deref());
    let index = pandas.map(index_columns).unwrap_or_default();
    let frame = reader.finish().map_err(unreadable)?;
    table_of(&frame.drop_many(index)).map_err(unreadable)?
}

/// The columns that pandas wrote as the index, by its metadata. pandas restores them as the index, so they are
/// not columns of the table.
fn index_columns(metadata: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Pandas {
        index_columns: Vec<serde_json::Value>,
    }
    let pandas = serde_json::from_str(metadata);
    let index = pandas.map_or(Vec::new(), |pandas: Pandas| pandas.index_columns);
    // A range index is an object here and not a column of the file.
    let names = index.iter().filter_map(serde_json::Value::as_str);
    names.map(str::to_owned).collect()
}

fn table_of(frame: &DataFrame) -> Result<Result<RawTable, String>, polars::error::PolarsError> {
    let names = frame
        .get_column_names_owned()
        .iter()
        .map(ToString::to_string)
        .collect();
    let mut table = match RawTable::new(names) {
        Ok(table) => table,
        Err(reason) => return Ok(Err(reason)),
    };
    let columns = frame.columns();
    for row in 0..frame.height() {
        let cells: Result<Vec<Cell>, _> = columns
            .iter()
            .map(|column| column.get(row).map(cell))
            .collect();
        if let Err(reason) = table.push(cells?) {
            return Ok(Err(reason));
        }
    }
    Ok(Ok(table))
}

fn cell(value: AnyValue<'_>) -> Cell {
    use AnyValue::*;
    match value {
        Null => Cell::Null,
        Boolean(b) => Cell::Bool(b),
        String(text) => Cell::Text(text.into()),
        StringOwned(text) => Cell::Text(text.as_str().into()),
        Float32(x) if x.is_nan() => Cell::Null,
        Float64(x) if x.is_nan() => Cell::Null,
        Float32(x) => Cell::Float(f64::from(x)),
        Float64(x) => Cell::Float(x),
        Date(_) | Datetime(..) | DatetimeOwned(..) => Cell::Date(value.to_string().into()),
        Int8(_) | Int16(_) | Int32(_) | Int64(_) | UInt8(_) | UInt16(_) | UInt32(_) | UInt64(_) => {
            match value.extract::<i64>() {
                Some(n) => Cell::Int(n),
                None => Cell::Other(value.to_string().into()),
            }
        }
        other => Cell::Other(
            other
                .to_string()
                .chars()
                .take(200)
                .collect::<std::string::String>()
                .into(),
        ),
    }
}
