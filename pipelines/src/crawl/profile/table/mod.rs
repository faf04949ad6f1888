//! Tables. The profile agrees with what pandas' default reader sees: same header, same rows, same
//! columns, same missing values. A table that pandas would not read plainly is refused, so that
//! task writers only get tables that work.

mod delimited;
mod describe;
mod json;
mod lenient;
mod parquet;
mod sqlite;
mod workbook;

use std::collections::HashSet;

use pybench::task::{FileKind, TableProfile};
use pybench_datasets::decontaminate::Table;

pub(super) use json::records as json_records;

/// More rows than this make a table broken: counts would not be exact.
const MAX_ROWS: usize = 200_000;
/// Cells held in memory.
const MAX_CELLS: usize = 3_000_000;
/// More columns than any task could name.
const MAX_COLUMNS: usize = 1_000;

/// A value as read.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Null,
    Int(i64),
    Float(f64),
    Bool(bool),
    /// ISO 8601.
    Date(Box<str>),
    Text(Box<str>),
    /// Lists, structs, binary: as text for samples.
    Other(Box<str>),
}

impl Cell {
    fn int(&self) -> Option<i64> {
        match self {
            Cell::Int(n) => Some(*n),
            _ => None,
        }
    }

    fn float(&self) -> Option<f64> {
        match self {
            Cell::Float(x) => Some(*x),
            _ => None,
        }
    }

    fn boolean(&self) -> Option<bool> {
        match self {
            Cell::Bool(b) => Some(*b),
            _ => None,
        }
    }
}

/// A table as read: rows one after another, each as wide as the header.
#[derive(Debug, Default)]
struct RawTable {
    names: Vec<String>,
    cells: Vec<Cell>,
    tables: Vec<String>,
    delimiter: Option<char>,
    encoding: Option<String>,
    /// The types of the values are still to be told from their text (csv).
    untyped: bool,
}

impl RawTable {
    fn new(names: Vec<String>) -> Result<Self, String> {
        check_names(&names)?;
        Ok(Self {
            names,
            ..Self::default()
        })
    }

    fn rows(&self) -> usize {
        self.cells.len() / self.names.len().max(1)
    }

    /// Append a row, which must be as wide as the header.
    fn push(&mut self, row: impl IntoIterator<Item = Cell>) -> Result<(), String> {
        self.cells.extend(row);
        if self.rows() > MAX_ROWS {
            return Err(format!("more than {MAX_ROWS} rows"));
        }
        if self.cells.len() > MAX_CELLS {
            return Err(format!("more than {MAX_CELLS} cells"));
        }
        Ok(())
    }
}

/// Column names that pandas keeps as they are and that a query can spell out.
fn check_names(names: &[String]) -> Result<(), String> {
    let mut seen = HashSet::new();
    if names.is_empty() {
        return Err("no columns".into());
    }
    if names.len() > MAX_COLUMNS {
        return Err(format!("more than {MAX_COLUMNS} columns"));
    }
    for (index, name) in names.iter().enumerate() {
        let number = index + 1;
        if name.trim().is_empty() {
            return Err(format!("column {number} has no name"));
        }
        if name.trim() != name || name.len() > 100 || name.contains(char::is_control) {
            return Err(format!(
                "the name of column {number} is longer than 100 bytes or has stray white space"
            ));
        }
        if !seen.insert(name) {
            return Err(format!("two columns are named `{name}`"));
        }
    }
    Ok(())
}

/// What is in a table, whether or not a task could be written for it; `None` for what is no table.
pub(super) fn content(kind: FileKind, bytes: &[u8]) -> Option<Table> {
    let raw = match kind {
        FileKind::Csv => return lenient::read(bytes, &[',', ';', '\t', '|']),
        FileKind::Tsv => return lenient::read(bytes, &['\t']),
        FileKind::Xlsx => workbook::read(bytes),
        FileKind::Jsonl => json::read_lines(bytes),
        FileKind::Json => json::read_records(bytes),
        FileKind::Parquet => parquet::read(bytes),
        FileKind::Sqlite => sqlite::read(bytes),
        _ => return None,
    };
    let raw = raw.ok()?;
    let show = |cell: &Cell| match cell {
        Cell::Null => None,
        Cell::Int(n) => Some(n.to_string()),
        Cell::Float(x) => Some(x.to_string()),
        Cell::Bool(b) => Some(b.to_string()),
        Cell::Date(text) | Cell::Text(text) | Cell::Other(text) => Some(text.to_string()),
    };
    let rows = raw.cells.chunks(raw.names.len().max(1));
    let rows = rows.map(|row| row.iter().map(show).collect());
    Some(Table::new(&raw.names, rows))
}

/// Profile a table. Errors: the reason why it is broken.
pub(super) fn profile(kind: FileKind, bytes: &[u8]) -> Result<TableProfile, String> {
    let table = match kind {
        FileKind::Csv => delimited::read(bytes, &[',', ';', '\t', '|'])?,
        FileKind::Tsv => delimited::read(bytes, &['\t'])?,
        FileKind::Xlsx => workbook::read(bytes)?,
        FileKind::Jsonl => json::read_lines(bytes)?,
        FileKind::Parquet => parquet::read(bytes)?,
        FileKind::Sqlite => sqlite::read(bytes)?,
        other => return Err(format!("{} is no table", other.name())),
    };
    if table.cells.is_empty() {
        return Err("no rows".into());
    }
    describe::describe(table)
}

/// What pandas' readers of csv and xlsx take for missing.
fn is_missing(text: &str) -> bool {
    matches!(
        text,
        "" | "#N/A"
            | "#N/A N/A"
            | "#NA"
            | "-1.#IND"
            | "-1.#QNAN"
            | "-NaN"
            | "-nan"
            | "1.#IND"
            | "1.#QNAN"
            | "<NA>"
            | "N/A"
            | "NA"
            | "NULL"
            | "NaN"
            | "None"
            | "n/a"
            | "nan"
            | "null"
    )
}

#[cfg(test)]
mod tests;
