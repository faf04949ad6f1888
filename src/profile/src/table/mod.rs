//! Profiles tables. A profile matches what pandas returns with the profile's [`ReadOptions`]: the same header, rows,
//! columns and missing values. Tables that pandas does not read cleanly are rejected, so that tasks are only written
//! for tables that work.

mod amount;
mod comma;
mod delimited;
mod describe;
mod json;
mod lenient;
mod notation;
pub(super) mod page;
mod parquet;
mod sqlite;
mod two_rows;
mod value;
mod workbook;
mod worksheet;

use std::collections::HashSet;

use polars::prelude::DataFrame;
use pybench_datasets::decontaminate::Table;
use pybench_types::read_options::ReadOptions;
use pybench_types::task::{ColumnKind, FileKind, TableProfile};

pub(super) use json::records as json_records;

/// A table with more rows counts as broken, because its counts would not be exact.
const MAX_ROWS: usize = 200_000;
/// Maximum number of cells held in memory.
const MAX_CELLS: usize = 3_000_000;
/// A table with more columns counts as broken.
const MAX_COLUMNS: usize = 1_000;

/// The value of one cell.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Null,
    Int(i64),
    Float(f64),
    Bool(bool),
    /// ISO 8601.
    Date(Box<str>),
    Text(Box<str>),
    /// Lists, structs or binary data, as text for samples.
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

/// A table before its types are determined. `cells` holds the rows one after another.
#[derive(Debug, Default)]
struct RawTable {
    names: Vec<String>,
    cells: Vec<Cell>,
    tables: Vec<String>,
    delimiter: Option<char>,
    encoding: Option<String>,
    /// Whether value types must be inferred from text (csv).
    untyped: bool,
    read: ReadOptions,
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

    /// Appends a row, which must be as wide as the header.
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

/// Checks that pandas keeps the column names as they are and that a query can spell them out.
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

/// The content of a table, even if no task can be written for it; `None` if the file is not a table.
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

/// Profiles a table.
///
/// # Errors
/// The reason why it is broken.
pub(super) fn profile(kind: FileKind, bytes: &[u8]) -> Result<TableProfile, String> {
    describe::describe(read(kind, bytes)?)
}

/// The columns of a table as pandas reads them, and their kinds. Values of the kind `other` are texts of no use.
///
/// # Errors
/// The reason why it is broken.
pub(super) fn frame(kind: FileKind, bytes: &[u8]) -> Result<(DataFrame, Vec<ColumnKind>), String> {
    let mut table = match kind {
        FileKind::Json => json::read_records(bytes)?,
        _ => read(kind, bytes)?,
    };
    describe::typed(&mut table).map_err(|error| error.to_string())
}

fn read(kind: FileKind, bytes: &[u8]) -> Result<RawTable, String> {
    let table = match kind {
        FileKind::Csv => delimited::read(bytes, &[',', ';', '\t', '|'])?,
        FileKind::Tsv => delimited::read(bytes, &['\t'])?,
        FileKind::Xlsx => workbook::read(bytes)?,
        FileKind::Jsonl => json::read_lines(bytes)?,
        FileKind::Parquet => parquet::read(bytes)?,
        FileKind::Sqlite => sqlite::read(bytes)?,
        other => return Err(format!("{} is no table", other.name())),
    };
    match table.cells.is_empty() {
        true => Err("no rows".into()),
        false => Ok(table),
    }
}

/// Whether pandas' readers of csv and xlsx treat a text as a missing value.
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
