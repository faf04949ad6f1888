//! Reads Parquet files of any schema in small batches and converts their rows to JSON values.

use std::fs::File;
use std::path::Path;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Map, Value};

use super::ReadError;

/// Rows decoded at a time.
const BATCH: usize = 64;
/// Maximum uncompressed size of a row group, in bytes, as stated in the file's metadata.
const MAX_GROUP: i64 = 4 << 30;
/// Maximum nesting depth of a column.
const MAX_DEPTH: usize = 8;

/// Call `on_row` for every row, as an object with the columns that `is_used` selects.
///
/// # Errors
/// Unreadable or invalid files; errors returned by `on_row`.
pub fn rows(
    path: &Path,
    is_used: &dyn Fn(&str) -> bool,
    on_row: &mut dyn FnMut(Value) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let invalid = |reason: String| ReadError::Invalid {
        path: path.to_owned(),
        reason,
    };
    let file = File::open(path).map_err(|source| ReadError::Io {
        path: path.to_owned(),
        source,
    })?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|error| invalid(format!("not a valid Parquet file: {error}")))?;
    let groups = builder.metadata().row_groups().iter();
    if groups
        .map(|group| group.total_byte_size())
        .any(|size| size > MAX_GROUP)
    {
        return Err(invalid("a row group is larger than 4 GiB".to_owned()));
    }
    let names = builder.schema().fields().iter().map(|field| field.name());
    let roots: Vec<_> = names
        .enumerate()
        .filter_map(|(at, name)| is_used(name).then_some(at))
        .collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
    let reader = builder.with_projection(mask).with_batch_size(BATCH).build();
    for batch in reader.map_err(|error| invalid(error.to_string()))? {
        let batch = batch.map_err(|error| invalid(error.to_string()))?;
        for row in 0..batch.num_rows() {
            on_row(object(&batch, row))?;
        }
    }
    Ok(())
}

fn object(batch: &RecordBatch, row: usize) -> Value {
    let schema = batch.schema();
    let names = schema.fields().iter().map(|field| field.name().clone());
    let values = batch.columns().iter().map(|column| value(column, row, 0));
    Value::Object(names.zip(values).collect())
}

/// A value as JSON; null for dates, binary data and other types that JSON lacks.
fn value(array: &dyn Array, row: usize, depth: usize) -> Value {
    if array.is_null(row) || depth > MAX_DEPTH {
        return Value::Null;
    }
    macro_rules! number {
        ($type:ty) => {
            Value::from(array.as_primitive::<$type>().value(row))
        };
    }
    let list = |inner: &dyn Array| {
        let items = (0..inner.len()).map(|at| value(inner, at, depth + 1));
        Value::Array(items.collect())
    };
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).into(),
        DataType::Utf8View => array.as_string_view().value(row).into(),
        DataType::Boolean => array.as_boolean().value(row).into(),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Float32 => number!(Float32Type),
        DataType::Float64 => number!(Float64Type),
        DataType::List(_) => list(&array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => list(&array.as_list::<i64>().value(row)),
        DataType::Struct(fields) => {
            let columns = array.as_struct().columns().iter();
            let values = columns.map(|column| value(column, row, depth + 1));
            let names = fields.iter().map(|field| field.name().clone());
            Value::Object(names.zip(values).collect::<Map<_, _>>())
        }
        _ => Value::Null,
    }
}
