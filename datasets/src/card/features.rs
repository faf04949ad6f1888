//! The columns and splits as `datasets` writes them into a card: `dataset_info`.

use std::fmt::Write;

use arrow::datatypes::{DataType, Field, Fields};

use crate::dataset::Written;
use crate::schema;

/// `dataset_info` of a card's header.
pub(super) fn info(written: &Written) -> String {
    let mut text = String::from("dataset_info:\n  features:\n");
    fields(schema().fields(), 2, &mut text);
    text += "  splits:\n";
    for (name, stats) in [("train", &written.train), ("test", &written.test)] {
        if name == "train" || stats.rows > 0 {
            let _ = writeln!(text, "  - name: {name}\n    num_examples: {}", stats.rows);
        }
    }
    text
}

fn fields(fields: &Fields, indent: usize, text: &mut String) {
    for field in fields {
        let _ = writeln!(text, "{:indent$}- name: {}", "", field.name());
        feature(field, indent + 2, text);
    }
}

/// What stands below the name of a column.
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

/// The name that `datasets` has for a type; [`schema`] has no others.
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
    fn types_have_names() {
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
    fn columns_are_nested() {
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
