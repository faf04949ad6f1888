//! Builds the pandas expression that reads a file according to its profile.

use pybench_compose::reading::{self, TableFile};
use pybench_types::task::{FileKind, Profile, SourceFile, TableProfile};

/// The expression; `None` for a file that is not a table.
pub(crate) fn pandas(file: &SourceFile) -> Option<String> {
    let Profile::Table(table) = &file.profile else {
        return None;
    };
    let path = py_str(&format!("./data/{}", file.name));
    match file.kind {
        FileKind::Csv
        | FileKind::Tsv
        | FileKind::Xlsx
        | FileKind::Json
        | FileKind::Jsonl
        | FileKind::Parquet => {
            let table = TableFile {
                path: &path,
                kind: file.kind,
                encoding: table.encoding.as_deref(),
                delimiter: table.delimiter,
                sheet: sheet(table),
                read: &table.read,
            };
            Some(reading::expression(&table, py_str))
        }
        FileKind::Sqlite => {
            let table = table.tables.first()?.replace('"', "\"\"");
            let query = py_str(&format!("SELECT * FROM \"{table}\""));
            Some(format!("pd.read_sql({query}, sqlite3.connect({path}))"))
        }
        _ => None,
    }
}

/// The name of the profiled worksheet if there are several.
fn sheet(table: &TableProfile) -> Option<&str> {
    match table.tables.as_slice() {
        [first, _, ..] => Some(first),
        _ => None,
    }
}

/// Adds `import sqlite3` to a cell whose reader expression needs it.
pub(crate) fn with_imports(cell: String) -> String {
    let missing = cell.contains("sqlite3.") && !cell.contains("import sqlite3");
    if missing {
        format!("import sqlite3\n{cell}")
    } else {
        cell
    }
}

/// The Python string literal of a text.
pub(crate) fn py_str(text: &str) -> String {
    let mut out = String::new();
    write_str(text, &mut out);
    out
}

pub(crate) fn write_str(text: &str, out: &mut String) {
    out.push('\'');
    for c in text.chars() {
        match c {
            '\'' => out.push_str("\\'"),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Control characters, and separators and byte-order marks that editors may drop.
            c if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}') => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('\'');
}
