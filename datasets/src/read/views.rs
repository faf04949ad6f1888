//! Texts as views. A page can repeat one long value in every row at the cost of some bits; as views, it is in memory
//! once, and what the rows will take is known before they are made.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field, Fields};

/// The fields, with texts as views.
pub(super) fn with_views(fields: &Fields) -> Fields {
    fields.iter().map(viewed).collect()
}

fn viewed(field: &Arc<Field>) -> Arc<Field> {
    let kind = match field.data_type() {
        DataType::Utf8 => DataType::Utf8View,
        DataType::List(items) => DataType::List(viewed(items)),
        DataType::Struct(fields) => DataType::Struct(with_views(fields)),
        other => other.clone(),
    };
    Arc::new(field.as_ref().clone().with_data_type(kind))
}

/// The size of all texts in a column, in bytes; a repeated text counts each time.
pub(super) fn text_bytes(column: &ArrayRef) -> usize {
    match column.data_type() {
        DataType::Utf8View => column
            .as_string_view()
            .lengths()
            .map(|length| length as usize)
            .sum(),
        DataType::List(_) => text_bytes(column.as_list::<i32>().values()),
        DataType::Struct(_) => column.as_struct().columns().iter().map(text_bytes).sum(),
        _ => 0,
    }
}
