//! Reads jsonl, and json that is an array of flat objects.

use std::collections::HashMap;

use pybench_types::task::TableProfile;
use serde_json::{Map, Value};

use super::{Cell, MAX_COLUMNS, RawTable, check_names, describe, notation};
use pybench_files::MAX_JSON;
use pybench_files::text;

/// Profiles an array of flat objects; returns `None` for json of any other shape.
pub(crate) fn records(bytes: &[u8]) -> Result<Option<TableProfile>, String> {
    let text = json_text(bytes)?;
    let value: Value = serde_json::from_str(&text).map_err(|e| format!("not JSON: {e}"))?;
    let Value::Array(items) = value else {
        return Ok(None);
    };
    let flat = |item: &Value| match item {
        Value::Object(object) => !object.values().any(|v| v.is_array() || v.is_object()),
        _ => false,
    };
    if items.is_empty() || !items.iter().all(flat) {
        return Ok(None);
    }
    let objects = items.into_iter().filter_map(|item| match item {
        Value::Object(object) => Some(object),
        _ => None,
    });
    table_of(objects.collect())
        .and_then(describe::describe)
        .map(Some)
}

/// Reads an array of objects.
pub(super) fn read_records(bytes: &[u8]) -> Result<RawTable, String> {
    let text = json_text(bytes)?;
    let objects = serde_json::from_str(&text).map_err(|e| format!("not JSON records: {e}"))?;
    table_of(objects)
}

/// Reads one object per line.
pub(super) fn read_lines(bytes: &[u8]) -> Result<RawTable, String> {
    let text = json_text(bytes)?;
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    let objects: Result<Vec<Map<String, Value>>, String> = lines
        .map(|(n, line)| {
            serde_json::from_str(line).map_err(|e| format!("line {}: no JSON object: {e}", n + 1))
        })
        .collect();
    let mut table = table_of(objects?)?;
    table.encoding = Some("utf-8".into());
    Ok(table)
}

fn json_text(bytes: &[u8]) -> Result<String, String> {
    if bytes.len() > MAX_JSON {
        return Err(format!("larger than {} MiB", MAX_JSON >> 20));
    }
    let decoded = text::decode(bytes)?;
    match decoded.encoding {
        "utf-8" => Ok(decoded.text.into_owned()),
        other => Err(format!("JSON in {other}, not UTF-8")),
    }
}

/// Builds the table. Columns are in the order in which their keys first occur, as in pandas.
fn table_of(objects: Vec<Map<String, Value>>) -> Result<RawTable, String> {
    let mut positions: HashMap<String, usize> = HashMap::new();
    let mut names = Vec::new();
    for key in objects.iter().flat_map(|object| object.keys()) {
        if !positions.contains_key(key) {
            positions.insert(key.clone(), names.len());
            names.push(key.clone());
        }
        if names.len() > MAX_COLUMNS {
            return Err(format!("more than {MAX_COLUMNS} columns"));
        }
    }
    check_names(&names)?;
    let mut table = RawTable::new(names)?;
    for object in objects {
        let mut row = vec![Cell::Null; table.names.len()];
        for (key, value) in object {
            row[positions[&key]] = cell(value);
        }
        table.push(row)?;
    }
    notation::recognize_texts(&mut table);
    Ok(table)
}

fn cell(value: Value) -> Cell {
    match value {
        Value::Null => Cell::Null,
        Value::Bool(b) => Cell::Bool(b),
        Value::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(n), _) => Cell::Int(n),
            (None, Some(x)) => Cell::Float(x),
            (None, None) => Cell::Other(n.to_string().into()),
        },
        Value::String(text) => Cell::Text(text.into()),
        nested => Cell::Other(
            nested
                .to_string()
                .chars()
                .take(200)
                .collect::<String>()
                .into(),
        ),
    }
}
