//! A streaming reader of Parquet files.

use std::fs::File;
use std::path::{Path, PathBuf};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt32Type};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use pybench_chat_template::{Message, Weight};
use serde_json::{Number, Value};

use crate::preference;
use crate::reader::{
    DIFFICULTY_COLUMN, MAX_MESSAGES, RecordKind, Records, SourceError, TOOLS_COLUMN,
    UNSEEN_COLUMNS, conversation, default_columns, io, is_default_column, json_list,
    normalize_role, unseen,
};
use crate::record::Record;

/// ParquetRows decoded at once.
const BATCH_ROWS: usize = 64;
/// Nesting of values in tools and tool calls.
const MAX_DEPTH: usize = 32;

/// Reads a Parquet file.
pub(crate) fn read(
    path: &Path,
    kind: RecordKind,
    column: Option<String>,
) -> Result<Records, SourceError> {
    let broken = |reason: String| SourceError::Broken {
        path: path.into(),
        reason,
    };
    let file = File::open(path).map_err(io(path))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|error| broken(error.to_string()))?;
    let names = builder.schema().fields().iter().map(|f| f.name().clone());
    let names: Vec<String> = names.collect();
    let wanted = match &column {
        Some(name) => names.iter().position(|n| n == name),
        None => names.iter().position(|n| is_default_column(kind, n)),
    };
    let wanted = wanted.ok_or_else(|| {
        let asked = column.as_deref().unwrap_or(default_columns(kind));
        broken(format!(
            "there is no column {asked}; the columns are {}",
            names.join(", ")
        ))
    })?;
    let mut roots = vec![wanted];
    if kind == RecordKind::Messages {
        let also = |name: &String| {
            let name = name.as_str();
            [TOOLS_COLUMN, DIFFICULTY_COLUMN].contains(&name) || UNSEEN_COLUMNS.contains(&name)
        };
        roots.extend((0..names.len()).filter(|&index| index != wanted && also(&names[index])));
    }
    if kind == RecordKind::Preference {
        let also = |name: &String| preference::COLUMNS.contains(&name.as_str());
        roots.extend((0..names.len()).filter(|&index| index != wanted && also(&names[index])));
    }
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
    let reader = builder
        .with_projection(mask)
        .with_batch_size(BATCH_ROWS)
        .build()
        .map_err(|error| broken(error.to_string()))?;
    Ok(Box::new(ParquetRows {
        reader,
        path: path.into(),
        column: names[wanted].clone(),
        kind,
        row: 0,
        ready: vec![].into_iter(),
        ended: false,
    }))
}

struct ParquetRows {
    reader: ParquetRecordBatchReader,
    path: PathBuf,
    column: String,
    kind: RecordKind,
    /// Index of the first row of the next batch.
    row: usize,
    ready: std::vec::IntoIter<Record>,
    ended: bool,
}

impl Iterator for ParquetRows {
    type Item = Result<Record, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(record) = self.ready.next() {
                return Some(Ok(record));
            }
            if self.ended {
                return None;
            }
            let batch = match self.reader.next()? {
                Ok(batch) => self.records(&batch),
                Err(error) => Err(self.broken(error.to_string())),
            };
            match batch {
                Ok(records) => self.ready = records.into_iter(),
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
    }
}

impl ParquetRows {
    fn broken(&self, reason: String) -> SourceError {
        SourceError::Broken {
            path: self.path.clone(),
            reason,
        }
    }

    fn records(&mut self, batch: &RecordBatch) -> Result<Vec<Record>, SourceError> {
        let first = self.row;
        self.row += batch.num_rows();
        let found = batch.column_by_name(&self.column);
        let found = found.ok_or_else(|| self.broken(format!("no column {}", self.column)))?;
        match self.kind {
            RecordKind::Text => self.texts(found, first),
            RecordKind::Messages => self.conversations(found, batch, first),
            RecordKind::Preference => self.pairs(batch, first),
        }
    }

    fn location(&self, row: usize) -> String {
        format!("{}:{row}", self.path.display())
    }

    fn texts(&self, found: &ArrayRef, first: usize) -> Result<Vec<Record>, SourceError> {
        let texts = self.text(found, &self.column)?;
        let texts = texts.as_string::<i32>();
        let record = |row: usize| Record::Text {
            text: or_empty(texts, row).to_owned(),
            location: self.location(first + row),
        };
        Ok((0..texts.len()).map(record).collect())
    }

    fn pairs(&self, batch: &RecordBatch, first: usize) -> Result<Vec<Record>, SourceError> {
        let schema = batch.schema();
        let pair = |row: usize| {
            let location = self.location(first + row);
            let mut values = serde_json::Map::new();
            for (field, column) in schema.fields().iter().zip(batch.columns()) {
                let name = field.name();
                let value = json(column, row, 0).map_err(|reason| format!("{name} {reason}"))?;
                values.insert(name.clone(), value);
            }
            let pair = preference::of_row(values, &location)?;
            Ok(Record::Preference(Box::new(pair)))
        };
        let located = |row: usize| {
            pair(row).map_err(|reason: String| SourceError::Row {
                location: self.location(first + row),
                reason,
            })
        };
        (0..batch.num_rows()).map(located).collect()
    }

    fn text(&self, array: &ArrayRef, name: &str) -> Result<ArrayRef, SourceError> {
        let text = matches!(
            array.data_type(),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Dictionary(..)
        );
        let cast = text.then(|| arrow::compute::cast(array, &DataType::Utf8));
        match cast {
            Some(Ok(array)) => Ok(array),
            _ => Err(self.broken(format!("column {}: {name} is not a string", self.column))),
        }
    }

    fn conversations(
        &self,
        found: &ArrayRef,
        batch: &RecordBatch,
        first: usize,
    ) -> Result<Vec<Record>, SourceError> {
        let column = |reason: &str| self.broken(format!("column {}: {reason}", self.column));
        let lists = found
            .as_list_opt::<i32>()
            .ok_or_else(|| column("is not a list"))?;
        let held_out = batch.column_by_name("held_out_template");
        let held_out: Option<&BooleanArray> = held_out.and_then(|array| array.as_boolean_opt());
        let named = batch.column_by_name("unseen");
        let named = named.and_then(|array| array.as_string_opt::<i32>());
        let levels = batch.column_by_name(DIFFICULTY_COLUMN);
        let levels = levels.and_then(|array| array.as_primitive_opt::<UInt32Type>());
        let tools = batch.column_by_name(TOOLS_COLUMN);
        let mut records = vec![];
        for row in 0..batch.num_rows() {
            let items = lists.value(row);
            let items = items.as_struct_opt();
            let items = items.ok_or_else(|| column("does not contain structs"))?;
            let text = |names: [&str; 2]| {
                let array = names.iter().find_map(|name| items.column_by_name(name));
                let missing = || column(&format!("its structs have no field {}", names[0]));
                self.text(array.ok_or_else(missing)?, names[0])
            };
            let (roles, contents) = (text(["role", "from"])?, text(["content", "value"])?);
            let (roles, contents) = (roles.as_string::<i32>(), contents.as_string::<i32>());
            let location = self.location(first + row);
            let reason = |reason| SourceError::Row {
                location: location.clone(),
                reason,
            };
            let calls = items.column_by_name("tool_calls");
            let optional = |name: &str| {
                let array = items.column_by_name(name);
                array.map(|array| self.text(array, name)).transpose()
            };
            let weights = items.column_by_name("weight");
            let (ids, authors) = (optional("tool_call_id")?, optional("name")?);
            let optional_at = |array: &Option<ArrayRef>, i: usize| {
                let array = array.as_ref()?.as_string::<i32>();
                array.is_valid(i).then(|| array.value(i).to_owned())
            };
            // One more than is allowed, so that `conversation` reports the violation.
            let count = items.len().min(MAX_MESSAGES + 1);
            let message = |i: usize| -> Result<Message, SourceError> {
                let calls = calls.map(|column| list_at(column, i, "tool_calls"));
                Ok(Message {
                    tool_calls: calls.transpose().map_err(reason)?.unwrap_or_default(),
                    tool_call_id: optional_at(&ids, i),
                    name: optional_at(&authors, i),
                    weight: weights
                        .map(|column| weight_at(column, i))
                        .transpose()
                        .map_err(reason)?
                        .flatten(),
                    ..Message::new(normalize_role(or_empty(roles, i)), or_empty(contents, i))
                })
            };
            let messages = (0..count).map(message).collect::<Result<_, _>>()?;
            let held_out = held_out.is_some_and(|h| h.is_valid(row) && h.value(row));
            let named = named.filter(|names| names.is_valid(row));
            let unseen = unseen(named.map(|names| names.value(row)), held_out);
            let tools = tools.map(|column| list_at(column, row, TOOLS_COLUMN));
            let tools = tools.transpose().map_err(reason)?.unwrap_or_default();
            let level = levels.filter(|levels| levels.is_valid(row));
            let level = level.map_or(0, |levels| levels.value(row));
            records.push(conversation(messages, tools, unseen, level, location)?);
        }
        Ok(records)
    }
}

fn or_empty(texts: &arrow::array::StringArray, row: usize) -> &str {
    match texts.is_null(row) {
        true => "",
        false => texts.value(row),
    }
}

/// Tool calls or tools: a list of structs, or a JSON string.
fn list_at(column: &ArrayRef, row: usize, name: &str) -> Result<Vec<Value>, String> {
    let value = json(column, row, 0).map_err(|reason| format!("{name} {reason}"))?;
    json_list(name, value)
}

/// The weight of a message, if it has one.
fn weight_at(column: &ArrayRef, row: usize) -> Result<Option<Weight>, String> {
    let value = json(column, row, 0).map_err(|reason| format!("weight {reason}"))?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// A value of an array as JSON. Null fields are left out: in Arrow every row has the fields of all rows.
fn json(array: &dyn Array, row: usize, depth: usize) -> Result<Value, String> {
    if depth > MAX_DEPTH {
        return Err(format!("is nested more than {MAX_DEPTH} levels deep"));
    }
    if array.is_null(row) {
        return Ok(Value::Null);
    }
    let number = |to: DataType| {
        let one = arrow::compute::cast(&array.slice(row, 1), &to).map_err(|e| e.to_string())?;
        match one.is_null(0) {
            true => Err("contains a number of more than 63 bits".to_owned()),
            false => Ok(one),
        }
    };
    match array.data_type() {
        DataType::List(_) => {
            let items = array.as_list::<i32>().value(row);
            let values = (0..items.len()).map(|item| json(&items, item, depth + 1));
            Ok(Value::Array(values.collect::<Result<_, _>>()?))
        }
        DataType::Struct(fields) => {
            let mut object = serde_json::Map::new();
            for (field, column) in fields.iter().zip(array.as_struct().columns()) {
                match json(column, row, depth + 1)? {
                    Value::Null => {}
                    value => drop(object.insert(field.name().clone(), value)),
                }
            }
            Ok(object.into())
        }
        DataType::Utf8 => Ok(array.as_string::<i32>().value(row).into()),
        DataType::LargeUtf8 => Ok(array.as_string::<i64>().value(row).into()),
        DataType::Utf8View => Ok(array.as_string_view().value(row).into()),
        DataType::Boolean => Ok(array.as_boolean().value(row).into()),
        kind if kind.is_integer() => {
            let one = number(DataType::Int64)?;
            Ok(one.as_primitive::<Int64Type>().value(0).into())
        }
        kind if kind.is_floating() => {
            let one = number(DataType::Float64)?;
            let found = Number::from_f64(one.as_primitive::<Float64Type>().value(0));
            let found = found.ok_or("contains a number that is not finite")?;
            Ok(found.into())
        }
        kind => Err(format!("contains the unsupported type {kind}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ListArray, StringArray, StructArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;
    use parquet::arrow::ArrowWriter;
    use serde_json::json;

    use super::*;
    use crate::lines;
    use crate::record::Conversation;

    /// One message per row, with this role.
    fn replies(role: &str, texts: [&str; 2]) -> ArrayRef {
        let roles = StringArray::from(vec![role; texts.len()]);
        let contents = StringArray::from(texts.to_vec());
        let fields = ["role", "content"].map(|name| Field::new(name, DataType::Utf8, false));
        let columns: Vec<ArrayRef> = vec![Arc::new(roles), Arc::new(contents)];
        let messages = StructArray::new(fields.to_vec().into(), columns, None);
        let element = Field::new("element", messages.data_type().clone(), false);
        let offsets = OffsetBuffer::from_lengths([1; 2]);
        Arc::new(ListArray::new(
            Arc::new(element),
            offsets,
            Arc::new(messages),
            None,
        ))
    }

    #[test]
    fn pairs_are_those_of_the_same_rows_in_json() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let tools = r#"[{"type": "function", "function": {"name": "f"}}]"#;
        let ids: ArrayRef = Arc::new(StringArray::from(vec!["1", "2"]));
        let rows = RecordBatch::try_from_iter([
            ("task_id", ids),
            ("prompt", replies("user", ["a", "b"])),
            ("chosen", replies("assistant", ["c", "d"])),
            ("rejected", replies("assistant", ["e", "f"])),
            (
                "tools",
                Arc::new(StringArray::from(vec![None, Some(tools)])) as ArrayRef,
            ),
        ])
        .unwrap();
        let file = File::create(at("pairs")).unwrap();
        let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        let line = |[prompt, chosen, rejected]: [&str; 3], tools: Option<&str>| {
            let says = |role: &str, text: &str| json!([{"role": role, "content": text}]);
            let row = json!({
                "prompt": says("user", prompt), "chosen": says("assistant", chosen),
                "rejected": says("assistant", rejected), "tools": tools,
            });
            row.to_string() + "\n"
        };
        let lines = line(["a", "c", "e"], None) + &line(["b", "d", "f"], Some(tools));
        std::fs::write(at("lines"), lines).unwrap();
        let pairs = |records: Records| -> Vec<Vec<Conversation>> {
            let pairs = records.map(|record| match record.unwrap() {
                Record::Preference(pair) => {
                    let sides = [pair.chosen, pair.rejected];
                    // Where it stands differs.
                    sides
                        .map(|side| Conversation {
                            location: String::new(),
                            ..side
                        })
                        .into()
                }
                other => panic!("{other:?}"),
            });
            pairs.collect()
        };
        let kind = RecordKind::Preference;
        let found = pairs(read(&at("pairs"), kind, None).unwrap());
        assert_eq!(found.len(), 2);
        assert_eq!(found, pairs(lines::read(&at("lines"), kind, None).unwrap()));
    }

    #[test]
    fn fuzz_parquet() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.parquet");
        bolero::check!().for_each(|noise: &[u8]| {
            let mut file = b"PAR1".to_vec();
            file.extend(noise);
            file.extend((noise.len() as u32).to_le_bytes());
            file.extend(b"PAR1");
            std::fs::write(&path, file).unwrap();
            for kind in [
                RecordKind::Messages,
                RecordKind::Text,
                RecordKind::Preference,
            ] {
                if let Ok(records) = read(&path, kind, None) {
                    records.for_each(drop);
                }
            }
        });
    }
}
