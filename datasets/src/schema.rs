//! The Arrow schema of a shard, and the conversion of rows into record batches.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, Float64Array, ListArray, RecordBatch, StringArray, StructArray,
    UInt32Array, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema};

use crate::row::{Row, category_name, language_code};
use crate::row_hashes::RowHashes;
use pybench_types::id::Digest;
use pybench_types::trajectory::Role;

/// The schema of every shard. `tools` is a nullable string (JSON if the message format has tools), so it can be
/// concatenated with PyInstruct's all-null column.
pub fn schema() -> Schema {
    Schema::new(vec![
        list("messages", messages()),
        Field::new("tools", DataType::Utf8, true),
        text("tool_choices"),
        text("task_id"),
        text("trajectory_id"),
        text("category"),
        text("subcategory"),
        text("keyword"),
        text("template"),
        Field::new("held_out_template", DataType::Boolean, false),
        text_list("operations"),
        text_list("pairs"),
        text_list("wordings"),
        Field::new("difficulty", DataType::UInt32, false),
        Field::new("renamed", DataType::Boolean, false),
        text("unseen"),
        text("language"),
        text("query"),
        Field::new("task_license", DataType::Utf8, true),
        Field::new("task_source", DataType::Utf8, true),
        list("files", files()),
        text("teacher"),
        Field::new("student", DataType::Utf8, true),
        Field::new("provenance", DataType::Utf8, true),
        Field::new("sampling", DataType::Struct(sampling()), false),
        Field::new("seed", DataType::UInt64, false),
        text("environment"),
        text("interpreter"),
        text("format"),
        Field::new("attempts", DataType::Struct(attempts()), false),
        Field::new("turns", DataType::UInt32, false),
        Field::new("tokens", DataType::Struct(tokens()), false),
        list("outputs", outputs()),
        list("checks", checks()),
        text("checker"),
        text("grading"),
        Field::new("proof", DataType::Struct(proof()), false),
    ])
}

/// Convert rows to a record batch of [`schema`].
pub(crate) fn batch(rows: &[Row]) -> Result<RecordBatch, ArrowError> {
    let columns = vec![
        lists(messages(), rows, |row| &row.messages, message_columns)?,
        optional_strings(rows, |row| row.tools.as_deref()),
        strings(rows, |row| &row.tool_choices),
        strings(rows, |row| row.task_id.as_str()),
        strings(rows, |row| row.trajectory_id.as_str()),
        strings(rows, |row| category_name(row.category)),
        strings(rows, |row| &row.subcategory),
        strings(rows, |row| &row.keyword),
        strings(rows, |row| &row.template),
        Arc::new(BooleanArray::from_iter(
            rows.iter().map(|row| Some(row.held_out_template)),
        )),
        string_lists(rows, |row| &row.operations)?,
        string_lists(rows, |row| &row.pairs)?,
        string_lists(rows, |row| &row.wordings)?,
        small_numbers(rows, |row| row.difficulty),
        Arc::new(BooleanArray::from_iter(
            rows.iter().map(|row| Some(row.renamed)),
        )),
        strings(rows, |row| &row.unseen),
        strings(rows, |row| language_code(row.language)),
        strings(rows, |row| &row.query),
        optional_strings(rows, |row| row.task_license.as_deref()),
        optional_strings(rows, |row| row.task_source.as_deref()),
        lists(files(), rows, |row| &row.files, file_columns)?,
        strings(rows, |row| &row.teacher),
        optional_strings(rows, |row| row.student.as_deref()),
        optional_strings(rows, |row| row.provenance.as_deref()),
        structs(sampling(), sampling_columns(rows))?,
        numbers(rows, |row| row.seed),
        strings(rows, |row| &row.environment),
        json(rows, |row| &row.interpreter)?,
        strings(rows, |row| &row.format),
        structs(attempts(), attempt_columns(rows))?,
        small_numbers(rows, |row| row.turns),
        structs(tokens(), token_columns(rows))?,
        lists(outputs(), rows, |row| &row.outputs, output_columns)?,
        lists(checks(), rows, |row| &row.checks, check_columns)?,
        strings(rows, |row| &row.checker),
        json(rows, |row| &row.grading)?,
        structs(proof(), proof_columns(rows)?)?,
    ];
    RecordBatch::try_new(Arc::new(schema()), columns)
}

// --- nested types ------------------------------------------------------------------------------

fn messages() -> Fields {
    let weight = Field::new("weight", DataType::UInt32, true);
    [text("role"), text("content"), weight]
        .into_iter()
        .collect()
}

fn files() -> Fields {
    Fields::from(vec![
        text("name"),
        text("blake3"),
        Field::new("license", DataType::Utf8, true),
        text("origin"),
        text("kind"),
        Field::new("derived_from", DataType::Utf8, true),
    ])
}

fn attempts() -> Fields {
    let number = |name| Field::new(name, DataType::UInt32, false);
    ["tried", "solved"].into_iter().map(number).collect()
}

fn attempt_columns(rows: &[Row]) -> Vec<ArrayRef> {
    vec![
        small_numbers(rows, |row| row.attempts.tried),
        small_numbers(rows, |row| row.attempts.solved),
    ]
}

fn sampling() -> Fields {
    Fields::from(vec![
        Field::new("temperature", DataType::Float64, false),
        Field::new("top_p", DataType::Float64, false),
        Field::new("max_tokens", DataType::UInt32, false),
        Field::new("sample", DataType::UInt32, false),
    ])
}

fn tokens() -> Fields {
    Fields::from(vec![
        Field::new("prompt", DataType::UInt64, false),
        Field::new("completion", DataType::UInt64, false),
        text("counted_by"),
    ])
}

fn outputs() -> Fields {
    Fields::from(vec![
        text("path"),
        text("blake3"),
        text("content"),
        Field::new("size", DataType::UInt64, false),
    ])
}

fn checks() -> Fields {
    [text("subject"), text("outcome")].into_iter().collect()
}

fn proof() -> Fields {
    let texts = [
        "query",
        "prompts",
        "teacher",
        "sampling",
        "environment",
        "files",
        "outputs",
        "grading",
        "checks",
    ];
    let mut fields: Vec<Field> = texts.into_iter().map(text).collect();
    fields.push(text_list("cells"));
    fields.push(text_list("observations"));
    fields.push(Field::new("scrubbed", DataType::UInt32, false));
    fields.push(text("row"));
    Fields::from(fields)
}

fn message_columns(messages: &[&pybench_types::trajectory::Message]) -> Vec<ArrayRef> {
    vec![
        strings(messages, |m| m.role.name()),
        strings(messages, |m| &m.content),
        Arc::new(UInt32Array::from_iter(messages.iter().map(|m| weight(m)))),
    ]
}

/// The weight of a reply, as in OpenAI's fine-tuning format; other messages have none.
fn weight(message: &pybench_types::trajectory::Message) -> Option<u32> {
    (message.role == Role::Assistant).then_some(u32::from(message.trained))
}

fn file_columns(files: &[&crate::RowFile]) -> Vec<ArrayRef> {
    let licenses = files.iter().map(|f| f.license.as_deref());
    let derived_from = files
        .iter()
        .map(|f| f.derived_from.as_ref().map(Digest::as_str));
    vec![
        strings(files, |f| &f.name),
        strings(files, |f| f.blake3.as_str()),
        Arc::new(StringArray::from_iter(licenses)),
        strings(files, |f| &f.origin),
        strings(files, |f| f.kind),
        Arc::new(StringArray::from_iter(derived_from)),
    ]
}

fn sampling_columns(rows: &[Row]) -> Vec<ArrayRef> {
    let floats = |get: fn(&Row) -> f64| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(rows.iter().map(get)))
    };
    vec![
        floats(|row| row.sampling.temperature),
        floats(|row| row.sampling.top_p),
        small_numbers(rows, |row| row.sampling.max_tokens),
        small_numbers(rows, |row| row.sample),
    ]
}

fn token_columns(rows: &[Row]) -> Vec<ArrayRef> {
    vec![
        numbers(rows, |row| row.tokens.prompt),
        numbers(rows, |row| row.tokens.completion),
        strings(rows, |row| row.tokens.counted_by.name()),
    ]
}

fn output_columns(outputs: &[&crate::RowOutput]) -> Vec<ArrayRef> {
    vec![
        strings(outputs, |o| &o.path),
        strings(outputs, |o| o.blake3.as_str()),
        strings(outputs, |o| o.content.as_str()),
        numbers(outputs, |o| o.size),
    ]
}

fn check_columns(checks: &[&crate::CheckOutcome]) -> Vec<ArrayRef> {
    vec![
        strings(checks, |c| &c.subject),
        strings(checks, |c| c.outcome),
    ]
}

fn proof_columns(rows: &[Row]) -> Result<Vec<ArrayRef>, ArrowError> {
    let hashes: Vec<RowHashes> = rows.iter().map(RowHashes::of).collect();
    Ok(vec![
        strings(&hashes, |h| &h.query),
        strings(&hashes, |h| &h.prompts),
        strings(&hashes, |h| &h.teacher),
        strings(&hashes, |h| &h.sampling),
        strings(&hashes, |h| &h.environment),
        strings(&hashes, |h| &h.files),
        strings(&hashes, |h| &h.outputs),
        strings(&hashes, |h| &h.grading),
        strings(&hashes, |h| &h.checks),
        string_lists(&hashes, |h| &h.cells)?,
        string_lists(&hashes, |h| &h.observations)?,
        small_numbers(&hashes, |h| h.scrubbed),
        strings(&hashes, |h| &h.row),
    ])
}

// --- builders ----------------------------------------------------------------------------------

pub(crate) fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, false)
}

/// A list of structs. Its element is called `element`, as the Parquet format requires.
pub(crate) fn list(name: &str, fields: Fields) -> Field {
    Field::new(name, DataType::List(element(fields)), false)
}

fn element(fields: Fields) -> Arc<Field> {
    Arc::new(Field::new("element", DataType::Struct(fields), false))
}

pub(crate) fn strings<'a, T>(items: &'a [T], get: impl Fn(&'a T) -> &'a str) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(items.iter().map(get)))
}

fn optional_strings<'a>(rows: &'a [Row], get: impl Fn(&'a Row) -> Option<&'a str>) -> ArrayRef {
    Arc::new(StringArray::from_iter(rows.iter().map(get)))
}

/// A list of non-null strings.
fn text_list(name: &str) -> Field {
    Field::new(name, DataType::List(Arc::new(text("element"))), false)
}

fn string_lists<T>(items: &[T], get: impl Fn(&T) -> &Vec<String>) -> Result<ArrayRef, ArrowError> {
    let offsets = OffsetBuffer::from_lengths(items.iter().map(|item| get(item).len()));
    let flat: Vec<&String> = items.iter().flat_map(&get).collect();
    let values = strings(&flat, |text| text.as_str());
    let list = ListArray::try_new(Arc::new(text("element")), offsets, values, None)?;
    Ok(Arc::new(list))
}

/// A column of values as JSON strings.
fn json<T: serde::Serialize>(
    rows: &[Row],
    get: impl Fn(&Row) -> &T,
) -> Result<ArrayRef, ArrowError> {
    let texts = rows.iter().map(|row| serde_json::to_string(get(row)));
    let texts: Result<Vec<String>, _> = texts.collect();
    let texts = texts.map_err(|error| ArrowError::JsonError(error.to_string()))?;
    Ok(strings(&texts, |text| text.as_str()))
}

fn numbers<T>(items: &[T], get: impl Fn(&T) -> u64) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(items.iter().map(get)))
}

fn small_numbers<T>(items: &[T], get: impl Fn(&T) -> u32) -> ArrayRef {
    Arc::new(UInt32Array::from_iter_values(items.iter().map(get)))
}

fn structs(fields: Fields, columns: Vec<ArrayRef>) -> Result<ArrayRef, ArrowError> {
    Ok(Arc::new(StructArray::try_new(fields, columns, None)?))
}

/// A list column: the concatenated items of all rows, and the length of each list.
pub(crate) fn lists<'a, R, T: 'a>(
    fields: Fields,
    rows: &'a [R],
    items: impl Fn(&'a R) -> &'a [T],
    columns: impl Fn(&[&'a T]) -> Vec<ArrayRef>,
) -> Result<ArrayRef, ArrowError> {
    let lengths = rows.iter().map(|row| items(row).len());
    let offsets = OffsetBuffer::from_lengths(lengths);
    let flat: Vec<&T> = rows.iter().flat_map(&items).collect();
    let values =
        StructArray::try_new_with_length(fields.clone(), columns(&flat), None, flat.len())?;
    let list = ListArray::try_new(element(fields), offsets, Arc::new(values), None)?;
    Ok(Arc::new(list))
}
