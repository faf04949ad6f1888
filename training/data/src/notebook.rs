//! Converts notebooks to text: Markdown cells as they are, code and its output in fences.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::reader::{SourceError, io};
use crate::record::Record;

/// Notebooks are large because of the images in them.
const MAX_FILE_BYTES: u64 = 256 << 20;
const MAX_CELLS: usize = 100_000;
/// Characters of one output; the middle of longer outputs is left out.
const MAX_OUTPUT_CHARS: usize = 2_000;

#[derive(Deserialize)]
struct Notebook {
    cells: Option<Vec<Cell>>,
    /// Where nbformat 3 stores the cells.
    worksheets: Option<Vec<Sheet>>,
    #[serde(default)]
    metadata: Map<String, Value>,
}

#[derive(Deserialize)]
struct Sheet {
    cells: Vec<Cell>,
}

#[derive(Deserialize)]
struct Cell {
    cell_type: String,
    /// A string or a list of lines; named `input` in nbformat 3.
    #[serde(default, alias = "input")]
    source: Value,
    #[serde(default)]
    outputs: Vec<Map<String, Value>>,
}

/// Reads a notebook file as one text.
pub(crate) fn read(path: &Path) -> Result<Record, SourceError> {
    let location = path.display().to_string();
    let bad = |reason: String| SourceError::Row {
        location: location.clone(),
        reason,
    };
    let size = std::fs::metadata(path).map_err(io(path))?.len();
    if size > MAX_FILE_BYTES {
        return Err(bad(format!("{size} bytes, more than {MAX_FILE_BYTES}")));
    }
    let bytes = std::fs::read(path).map_err(io(path))?;
    let text = text(&bytes).map_err(bad)?;
    Ok(Record::Text { text, location })
}

fn text(bytes: &[u8]) -> Result<String, String> {
    let notebook: Notebook =
        serde_json::from_slice(bytes).map_err(|error| format!("not a notebook: {error}"))?;
    let sheets = notebook.worksheets.unwrap_or_default().into_iter();
    let cells = notebook
        .cells
        .into_iter()
        .chain(sheets.map(|sheet| sheet.cells));
    let cells: Vec<Cell> = cells.flatten().collect();
    if cells.len() > MAX_CELLS {
        return Err(format!("{} cells, more than {MAX_CELLS}", cells.len()));
    }
    let language = notebook.metadata.get("kernelspec");
    let language = language.and_then(|spec| spec["language"].as_str());
    let mut out = String::new();
    for cell in &cells {
        let source = joined(&cell.source);
        if source.trim().is_empty() {
            continue;
        }
        match cell.cell_type.as_str() {
            "code" => {
                fence(&mut out, language.unwrap_or("python"), &source);
                let output: String = cell.outputs.iter().map(output_text).collect();
                if !output.trim().is_empty() {
                    fence(&mut out, "", &truncate_middle(&output));
                }
            }
            "raw" => {}
            _ => block(&mut out, source.trim_end()),
        }
    }
    Ok(out)
}

fn block(out: &mut String, text: &str) {
    if !out.is_empty() {
        out.push_str("\n\n");
    }
    out.push_str(text);
}

/// Code in a fence longer than any run of backticks in it.
fn fence(out: &mut String, language: &str, code: &str) {
    let longest = code.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let marks = "`".repeat(3.max(longest + 1));
    block(
        out,
        &format!("{marks}{language}\n{}\n{marks}", code.trim_end()),
    );
}

fn joined(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

/// The text of an output. Of a traceback only the last line is kept; the rest is color codes and paths.
fn output_text(output: &Map<String, Value>) -> String {
    let text = |key: &str| output.get(key).map(joined).unwrap_or_default();
    let line = |text: String| match text.is_empty() || text.ends_with('\n') {
        true => text,
        false => text + "\n",
    };
    match output.get("output_type").and_then(Value::as_str) {
        Some("stream") => text("text"),
        Some("error" | "pyerr") => line(format!("{}: {}", text("ename"), text("evalue"))),
        _ => {
            let data = output.get("data").map(|data| joined(&data["text/plain"]));
            line(data.unwrap_or_else(|| text("text")))
        }
    }
}

fn truncate_middle(text: &str) -> String {
    let count = text.chars().count();
    if count <= MAX_OUTPUT_CHARS {
        return text.to_owned();
    }
    let head: String = text.chars().take(MAX_OUTPUT_CHARS / 2).collect();
    let tail: String = text.chars().skip(count - MAX_OUTPUT_CHARS / 2).collect();
    format!("{head}\n[...]\n{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_and_outputs_are_in_order() {
        let notebook = json!({"nbformat": 4, "metadata": {}, "cells": [
            {"cell_type": "markdown", "source": ["# 销售\n", "Read it."]},
            {"cell_type": "code", "source": "print(1)\n1/0", "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["1\n"]},
                {"output_type": "execute_result", "data": {"text/plain": ["<Figure>"], "image/png": "iVBO"}},
                {"output_type": "error", "ename": "ZeroDivisionError", "evalue": "division by zero", "traceback": ["\u{1b}[31m"]},
            ]},
            {"cell_type": "code", "source": "", "outputs": []},
            {"cell_type": "raw", "source": "x"},
            {"cell_type": "code", "source": "s = '''```'''", "outputs": []},
        ]});
        let wanted = "# 销售\nRead it.\n\n```python\nprint(1)\n1/0\n```\n\n```\n1\n<Figure>\nZeroDivisionError: division by zero\n```\n\n````python\ns = '''```'''\n````";
        assert_eq!(text(notebook.to_string().as_bytes()).unwrap(), wanted);
    }

    #[test]
    fn old_notebooks_are_read_and_long_outputs_truncated() {
        let printed = "x".repeat(3 * MAX_OUTPUT_CHARS);
        let notebook = json!({"nbformat": 3, "worksheets": [{"cells": [
            {"cell_type": "code", "input": ["a"], "outputs": [{"output_type": "stream", "text": printed}]},
        ]}]});
        let text = text(notebook.to_string().as_bytes()).unwrap();
        assert!(text.starts_with("```python\na\n```") && text.contains("[...]"));
        assert!(text.len() < MAX_OUTPUT_CHARS + 100);
    }

    #[test]
    fn fuzz_notebook() {
        bolero::check!().for_each(|noise: &[u8]| {
            let _ = text(noise);
        });
    }
}
