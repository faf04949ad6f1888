//! Reads Parquet in batches, with the crate that also reads and writes our shards.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowTemporalType, Date32Type, Date64Type, DurationMicrosecondType, DurationMillisecondType,
    DurationNanosecondType, DurationSecondType, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderBuilder, ParquetRecordBatchReaderBuilder};
use parquet::file::metadata::ParquetMetaData;
use serde::Deserialize;

use super::{Cell, MAX_CELLS, MAX_COLUMNS, MAX_ROWS, RawTable};

/// Maximum unpacked size by the metadata, in bytes.
const MAX_UNPACKED: i64 = 256 << 20;
/// Maximum characters of a list, struct or binary value.
const MAX_OTHER: usize = 200;
/// Maximum nesting depth of a value; deeper ones are shown as `…`.
const MAX_DEPTH: usize = 8;

pub(super) fn read(bytes: &[u8]) -> Result<RawTable, String> {
    let bytes = Bytes::copy_from_slice(bytes);
    let builder = ParquetRecordBatchReaderBuilder::try_new(bytes).map_err(unreadable)?;
    check_sizes(builder.metadata())?;
    let index = index_columns(builder.metadata());
    let names = builder.schema().fields().iter().map(|field| field.name());
    let (roots, names): (Vec<usize>, Vec<String>) = names
        .enumerate()
        .filter(|(_, name)| !index.contains(name))
        .map(|(at, name)| (at, name.clone()))
        .unzip();
    let mut table = RawTable::new(names)?;
    let local: Vec<bool> = roots.iter().map(|root| is_local(&builder, *root)).collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
    let reader = builder.with_projection(mask).build();
    for batch in reader.map_err(unreadable)? {
        let batch = batch.map_err(unreadable)?;
        for row in 0..batch.num_rows() {
            table.push(cells(&batch, row, &local)?)?;
        }
    }
    Ok(table)
}

fn unreadable(error: impl std::fmt::Display) -> String {
    format!("not a readable Parquet file: {error}")
}

/// Checks the sizes stated in the metadata.
fn check_sizes(metadata: &ParquetMetaData) -> Result<(), String> {
    let file = metadata.file_metadata();
    let rows = usize::try_from(file.num_rows()).map_err(unreadable)?;
    let columns = file.schema_descr().num_columns();
    let groups = metadata.row_groups().iter();
    let unpacked = groups.fold(0_i64, |sum, group| {
        sum.saturating_add(group.total_byte_size())
    });
    if rows > MAX_ROWS || columns > MAX_COLUMNS || rows.saturating_mul(columns) > MAX_CELLS {
        return Err(format!("{rows} rows and {columns} columns are too many"));
    }
    if unpacked > MAX_UNPACKED {
        return Err(format!("unpacks to more than {} MiB", MAX_UNPACKED >> 20));
    }
    Ok(())
}

/// The columns that pandas wrote as the index, by its metadata. pandas restores them as the index, so they are
/// not columns of the table.
fn index_columns(metadata: &ParquetMetaData) -> Vec<String> {
    #[derive(Deserialize)]
    struct Pandas {
        index_columns: Vec<serde_json::Value>,
    }
    let entries = metadata.file_metadata().key_value_metadata();
    let mut entries = entries.into_iter().flatten();
    let pandas = entries.find(|entry| entry.key == "pandas");
    let pandas = pandas.and_then(|entry| entry.value.as_deref());
    let pandas = pandas.and_then(|text| serde_json::from_str(text).ok());
    let index = pandas.map_or(Vec::new(), |pandas: Pandas| pandas.index_columns);
    // A range index is an object here and not a column of the file.
    let names = index.iter().filter_map(serde_json::Value::as_str);
    names.map(str::to_owned).collect()
}

/// Whether the times of a column have no time zone: files from before logical types do not tell, and the `parquet`
/// crate takes them for UTC.
fn is_local<T>(builder: &ArrowReaderBuilder<T>, root: usize) -> bool {
    let schema = builder.parquet_schema();
    let mut leaves = (0..schema.num_columns()).map(|leaf| (schema.get_column_root_idx(leaf), leaf));
    let leaf = leaves.find(|(of, _)| *of == root).map(|(_, leaf)| leaf);
    let is_time = matches!(
        builder.schema().field(root).data_type(),
        DataType::Timestamp(..)
    );
    is_time && leaf.is_some_and(|leaf| schema.column(leaf).logical_type_ref().is_none())
}

fn cells(batch: &RecordBatch, row: usize, local: &[bool]) -> Result<Vec<Cell>, String> {
    let schema = batch.schema_ref();
    let columns = batch.columns().iter().zip(schema.fields()).zip(local);
    let cells = columns.map(|((column, field), local)| {
        let cell = match *local && column.is_valid(row) {
            true => date(column, row),
            false => cell(column, row, 0),
        };
        cell.map_err(|reason| format!("column {}: {reason}", field.name()))
    });
    cells.collect()
}

pub(super) fn cell(array: &dyn Array, row: usize, depth: usize) -> Result<Cell, String> {
    if array.is_null(row) {
        return Ok(Cell::Null);
    }
    macro_rules! int {
        ($type:ty) => {
            Cell::Int(array.as_primitive::<$type>().value(row).into())
        };
    }
    Ok(match array.data_type() {
        DataType::Null => Cell::Null,
        DataType::Boolean => Cell::Bool(array.as_boolean().value(row)),
        DataType::Utf8 => Cell::Text(array.as_string::<i32>().value(row).into()),
        DataType::LargeUtf8 => Cell::Text(array.as_string::<i64>().value(row).into()),
        DataType::Utf8View => Cell::Text(array.as_string_view().value(row).into()),
        DataType::Int8 => int!(Int8Type),
        DataType::Int16 => int!(Int16Type),
        DataType::Int32 => int!(Int32Type),
        DataType::Int64 => int!(Int64Type),
        DataType::UInt8 => int!(UInt8Type),
        DataType::UInt16 => int!(UInt16Type),
        DataType::UInt32 => int!(UInt32Type),
        DataType::UInt64 => {
            let number = array.as_primitive::<UInt64Type>().value(row);
            i64::try_from(number).map_or_else(|_| Cell::Other(number.to_string().into()), Cell::Int)
        }
        DataType::Float32 => float(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(_, None) => date(array, row)?,
        _ => Cell::Other(other(array, row, depth)?.chars().take(MAX_OTHER).collect()),
    })
}

/// pandas treats a float that is not a number as a missing value.
fn float(number: f64) -> Cell {
    match number.is_nan() {
        true => Cell::Null,
        false => Cell::Float(number),
    }
}

/// A date or a time without a time zone, in ISO 8601 with a space.
pub(super) fn date(array: &dyn Array, row: usize) -> Result<Cell, String> {
    fn time<T: ArrowTemporalType>(array: &dyn Array, row: usize) -> Option<String>
    where
        i64: From<T::Native>,
    {
        let time = array.as_primitive::<T>().value_as_datetime(row)?;
        Some(time.to_string())
    }
    let text = match array.data_type() {
        DataType::Date32 => {
            let date = array.as_primitive::<Date32Type>().value_as_date(row);
            date.map(|date| date.to_string())
        }
        DataType::Date64 => time::<Date64Type>(array, row),
        DataType::Timestamp(TimeUnit::Second, _) => time::<TimestampSecondType>(array, row),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            time::<TimestampMillisecondType>(array, row)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            time::<TimestampMicrosecondType>(array, row)
        }
        _ => time::<TimestampNanosecondType>(array, row),
    };
    let text = text.ok_or("a time beyond the calendar")?;
    Ok(Cell::Date(text.into()))
}

/// A value that is no scalar for pandas, as text.
fn other(array: &dyn Array, row: usize, depth: usize) -> Result<String, String> {
    if depth > MAX_DEPTH {
        return Ok("…".to_owned());
    }
    let binary = |bytes: &[u8]| {
        let shown = &bytes[..bytes.len().min(MAX_OTHER)];
        format!("b\"{}\"", shown.escape_ascii())
    };
    let list = |items: &dyn Array| -> Result<String, String> {
        let shown = (0..items.len().min(MAX_OTHER)).map(|at| nested(items, at, depth + 1));
        let shown: Vec<String> = shown.collect::<Result<_, _>>()?;
        Ok(format!("[{}]", shown.join(", ")))
    };
    Ok(match array.data_type() {
        DataType::Binary => binary(array.as_binary::<i32>().value(row)),
        DataType::LargeBinary => binary(array.as_binary::<i64>().value(row)),
        DataType::BinaryView => binary(array.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => binary(array.as_fixed_size_binary().value(row)),
        DataType::List(_) => list(&array.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => list(&array.as_list::<i64>().value(row))?,
        DataType::Map(..) => list(&array.as_map().value(row))?,
        DataType::Struct(_) => {
            let fields = array.as_struct().columns().iter();
            let fields = fields.map(|field| nested(field, row, depth + 1));
            let fields: Vec<String> = fields.collect::<Result<_, _>>()?;
            format!("{{{}}}", fields.join(","))
        }
        DataType::Duration(unit) => duration(array, row, *unit),
        unsupported => return Err(format!("values of type {unsupported} are not supported")),
    })
}

/// A value inside a list or struct.
fn nested(array: &dyn Array, row: usize, depth: usize) -> Result<String, String> {
    Ok(match cell(array, row, depth)? {
        Cell::Null => "null".to_owned(),
        Cell::Int(number) => number.to_string(),
        Cell::Float(number) => format!("{number:?}"),
        Cell::Bool(value) => value.to_string(),
        Cell::Text(text) => format!("\"{text}\""),
        Cell::Date(text) | Cell::Other(text) => text.into(),
    })
}

fn duration(array: &dyn Array, row: usize, unit: TimeUnit) -> String {
    let (count, unit) = match unit {
        TimeUnit::Second => (array.as_primitive::<DurationSecondType>().value(row), "s"),
        TimeUnit::Millisecond => {
            let counts = array.as_primitive::<DurationMillisecondType>();
            (counts.value(row), "ms")
        }
        TimeUnit::Microsecond => {
            let counts = array.as_primitive::<DurationMicrosecondType>();
            (counts.value(row), "µs")
        }
        TimeUnit::Nanosecond => {
            let counts = array.as_primitive::<DurationNanosecondType>();
            (counts.value(row), "ns")
        }
    };
    format!("{count} {unit}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::builder::{Int32Builder, ListBuilder};
    use arrow_array::{
        ArrayRef, BinaryArray, Date32Array, Float64Array, TimestampMillisecondArray, UInt64Array,
    };
    use parquet::arrow::ArrowWriter;

    use super::*;

    fn read_column(column: ArrayRef) -> Result<Vec<Cell>, String> {
        let batch = RecordBatch::try_from_iter([("a", column)]).unwrap();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        Ok(read(&bytes)?.cells)
    }

    #[test]
    fn values_become_cells() {
        let other = |text: &str| Cell::Other(text.into());
        let date = |text: &str| Cell::Date(text.into());
        let mut lists = ListBuilder::new(Int32Builder::new());
        lists.append_value([Some(1), None, Some(3)]);
        lists.append_null();
        let columns: Vec<(ArrayRef, [Cell; 2])> = vec![
            (
                Arc::new(UInt64Array::from(vec![7, u64::MAX])),
                [Cell::Int(7), other("18446744073709551615")],
            ),
            (
                Arc::new(Float64Array::from(vec![0.5, f64::NAN])),
                [Cell::Float(0.5), Cell::Null],
            ),
            (
                Arc::new(Date32Array::from(vec![19_844, -1])),
                [date("2024-05-01"), date("1969-12-31")],
            ),
            (
                Arc::new(TimestampMillisecondArray::from(vec![0, 1_500])),
                [date("1970-01-01 00:00:00"), date("1970-01-01 00:00:01.500")],
            ),
            (
                Arc::new(BinaryArray::from(vec![&b"a\0"[..], b""])),
                [other(r#"b"a\x00""#), other(r#"b"""#)],
            ),
            (
                Arc::new(lists.finish()),
                [other("[1, null, 3]"), Cell::Null],
            ),
        ];
        for (column, cells) in columns {
            assert_eq!(read_column(column).unwrap(), cells);
        }
    }

    #[test]
    fn a_time_zone_is_refused_with_the_column() {
        let times = TimestampMillisecondArray::from(vec![0]).with_timezone("UTC");
        let reason = read_column(Arc::new(times)).unwrap_err();
        assert!(
            reason.starts_with("column a: values of type Timestamp"),
            "{reason}"
        );
        assert!(reason.ends_with("are not supported"), "{reason}");
    }
}
