//! Renders `dataset_info`, the columns and splits in the format of the Python library `datasets`.

use std::fmt::Write;

use arrow_schema::{DataType, Field, Fields};

use super::{SplitSize, SplitSizes};
use crate::schema;
use crate::written::WrittenDataset;

/// Render `dataset_info` for the card's header.
pub(super) fn info(written: &WrittenDataset, sizes: &SplitSizes) -> String {
    let mut text = String::from("dataset_info:\n  features:\n");
    fields(schema().fields(), 2, &mut text);
    text += "  splits:\n";
    for (name, stats) in written.splits() {
        let size = sizes.get(name).copied().unwrap_or_default();
        let _ = writeln!(
            text,
            "  - name: {name}\n    num_bytes: {}\n    num_examples: {}",
            size.decompressed, stats.rows
        );
    }
    let sum = |of: fn(&SplitSize) -> u64| sizes.values().map(of).sum::<u64>();
    let (download, all) = (sum(|size| size.files), sum(|size| size.decompressed));
    let _ = writeln!(text, "  download_size: {download}\n  dataset_size: {all}");
    text
}

fn fields(fields: &Fields, indent: usize, text: &mut String) {
    for field in fields {
        let _ = writeln!(text, "{:indent$}- name: {}", "", field.name());
        feature(field, indent + 2, text);
    }
}

/// Render the type of a column.
fn feature(field: &Field, indent: usize, text: &mut String) {
    match field.data_type() {
        DataType::Struct(inner) => {
            let _ = writeln!(text, "{:indent$}struct:", "");
            fields(inner, indent, text);
        }
        DataType::List(item) => match item.data_type() {
            DataType::Struct(inner) => {
                let _ = writeln!(text, "{:indent$}list:", "");
                fields(inner, indent, text);
            }
            plain => {
                let _ = writeln!(text, "{:indent$}list: {}", "", name(plain));
            }
        },
        plain => {
            let _ = writeln!(text, "{:indent$}dtype: {}", "", name(plain));
        }
    }
}

/// The name of a type in `datasets`. Covers all types in [`schema`].
fn name(plain: &DataType) -> &'static str {
    match plain {
        DataType::Boolean => "bool",
        DataType::UInt32 => "uint32",
        DataType::UInt64 => "uint64",
        DataType::Float64 => "float64",
        _ => "string",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_type_has_a_name() {
        fn plain(fields: &Fields, found: &mut Vec<DataType>) {
            for field in fields {
                match field.data_type() {
                    DataType::Struct(inner) => plain(inner, found),
                    DataType::List(item) => match item.data_type() {
                        DataType::Struct(inner) => plain(inner, found),
                        other => found.push(other.clone()),
                    },
                    other => found.push(other.clone()),
                }
            }
        }
        let mut found = Vec::new();
        plain(schema().fields(), &mut found);
        for kind in found {
            let known = name(&kind) != "string" || kind == DataType::Utf8;
            assert!(known, "{kind} has no name");
        }
    }

    #[test]
    fn nested_columns_are_rendered() {
        let mut text = String::new();
        fields(schema().fields(), 0, &mut text);
        let messages = "- name: messages\n  list:\n  - name: role\n    dtype: string\n";
        assert!(text.starts_with(messages), "{text}");
        assert!(
            text.contains(
                "- name: sampling\n  struct:\n  - name: temperature\n    dtype: float64\n"
            )
        );
        assert!(
            text.contains("  - name: cells\n    list: string\n"),
            "{text}"
        );
    }
}
