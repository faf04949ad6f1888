//! From a table as read to its profile.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use pybench::task::{ColumnKind, ColumnProfile, TableProfile};
use regex::Regex;

use super::{Cell, RawTable};

/// Rows and characters shown of a table.
const SAMPLE_ROWS: usize = 5;
const SAMPLE_TEXT: usize = 100;

pub(super) fn describe(mut table: RawTable) -> TableProfile {
    let (width, rows) = (table.names.len(), table.rows());
    let sample = sample(&table);
    let columns = (0..width)
        .map(|index| {
            let kind = settle_column(&mut table, index);
            describe_column(&table, index, kind)
        })
        .collect();
    let mut seen = HashSet::with_capacity(rows);
    let repeated = table
        .cells
        .chunks(width)
        .filter(|row| !seen.insert(hash(row)));
    TableProfile {
        rows: rows as u64,
        columns,
        duplicate_rows: repeated.count() as u64,
        sample,
        tables: table.tables,
        delimiter: table.delimiter,
        encoding: table.encoding,
    }
}

fn sample(table: &RawTable) -> Vec<Vec<Option<String>>> {
    let shown = |cell: &Cell| show(cell).map(|text| text.chars().take(SAMPLE_TEXT).collect());
    let rows = table.cells.chunks(table.names.len()).take(SAMPLE_ROWS);
    rows.map(|row| row.iter().map(shown).collect()).collect()
}

fn show(cell: &Cell) -> Option<String> {
    Some(match cell {
        Cell::Null => return None,
        Cell::Int(n) => n.to_string(),
        Cell::Float(x) => format!("{x:?}"),
        Cell::Bool(true) => "True".into(),
        Cell::Bool(false) => "False".into(),
        Cell::Date(text) | Cell::Text(text) | Cell::Other(text) => text.to_string(),
    })
}

/// Tell a column's kind and make all its values of that kind, so that equal values are equal.
fn settle_column(table: &mut RawTable, index: usize) -> ColumnKind {
    let width = table.names.len();
    let mut column: Vec<&mut Cell> = table.cells.iter_mut().skip(index).step_by(width).collect();
    if table.untyped {
        type_texts(&mut column);
    }
    let any = |test: fn(&Cell) -> bool| column.iter().any(|cell| test(cell));
    let int = any(|c| matches!(c, Cell::Int(_)));
    let float = any(|c| matches!(c, Cell::Float(_)));
    let boolean = any(|c| matches!(c, Cell::Bool(_)));
    let date = any(|c| matches!(c, Cell::Date(_)));
    let text = any(|c| matches!(c, Cell::Text(_)));
    let other = any(|c| matches!(c, Cell::Other(_)));
    match (int || float, boolean, date, text, other) {
        (true, false, false, false, false) if !float => ColumnKind::Integer,
        (true, false, false, false, false) => {
            for cell in column {
                if let Cell::Int(n) = cell {
                    *cell = Cell::Float(*n as f64);
                }
            }
            ColumnKind::Float
        }
        (false, true, false, false, false) => ColumnKind::Boolean,
        (false, false, true, false, false) => ColumnKind::Date,
        (false, false, false, true, false) => text_kind(&column, table.untyped),
        _ => ColumnKind::Other,
    }
}

/// Dates, or text. In a typed source (json, xlsx, …) text that is all numbers is neither, because
/// pandas may take it for numbers.
fn text_kind(column: &[&mut Cell], untyped: bool) -> ColumnKind {
    let all = |test: fn(&str) -> bool| {
        column.iter().all(|cell| match &**cell {
            Cell::Text(text) => test(text),
            _ => true,
        })
    };
    if all(is_iso_date) {
        ColumnKind::Date
    } else if !untyped && all(|text| text.trim().parse::<f64>().is_ok()) {
        ColumnKind::Other
    } else {
        ColumnKind::Text
    }
}

/// Give the texts of a csv column their type, when all of them agree on one.
fn type_texts(column: &mut [&mut Cell]) {
    for parse in [parse_int, parse_float, parse_bool] {
        let fits = |cell: &&mut Cell| match &**cell {
            Cell::Text(text) => parse(text).is_some(),
            _ => true,
        };
        if !column.iter().all(fits) {
            continue;
        }
        for cell in column {
            if let Cell::Text(text) = &**cell {
                **cell = parse(text).unwrap_or(Cell::Null);
            }
        }
        return;
    }
}

fn parse_int(text: &str) -> Option<Cell> {
    text.trim_matches(' ').parse().ok().map(Cell::Int)
}

fn parse_float(text: &str) -> Option<Cell> {
    let number: f64 = text.trim_matches(' ').parse().ok()?;
    (!number.is_nan()).then_some(Cell::Float(number)) // `NAN` is a word to pandas
}

fn parse_bool(text: &str) -> Option<Cell> {
    match text {
        "True" | "TRUE" | "true" => Some(Cell::Bool(true)),
        "False" | "FALSE" | "false" => Some(Cell::Bool(false)),
        _ => None,
    }
}

/// Dates and times in ISO 8601, whole dates only (`2024-05-01`, `2024-05-01T12:00:00Z`).
pub(super) fn is_iso_date(text: &str) -> bool {
    static FORM: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let time = r"[T ]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?";
        Regex::new(&format!(r"^(\d{{4}})-(\d\d)-(\d\d)({time})?$")).ok()
    });
    let Some(found) = FORM.as_ref().and_then(|form| form.captures(text)) else {
        return false;
    };
    let part = |n: usize| {
        found
            .get(n)
            .and_then(|m| m.as_str().parse::<u32>().ok())
            .unwrap_or(0)
    };
    let (year, month, day) = (part(1), part(2), part(3));
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => 0,
    };
    (1..=days).contains(&day)
}

fn describe_column(table: &RawTable, index: usize, kind: ColumnKind) -> ColumnProfile {
    let column = || table.cells.iter().skip(index).step_by(table.names.len());
    let values = || column().filter(|cell| **cell != Cell::Null);
    let distinct: HashSet<u64> = values()
        .map(|cell| hash(std::slice::from_ref(cell)))
        .collect();
    let smallest = values().min_by(|a, b| compare(a, b));
    let largest = values().max_by(|a, b| compare(a, b));
    let ordered = kind != ColumnKind::Other;
    let text = |cell: Option<&Cell>| {
        let text = cell.filter(|_| ordered).and_then(show)?;
        Some(text.chars().take(SAMPLE_TEXT).collect())
    };
    ColumnProfile {
        name: table.names[index].clone(),
        kind,
        nulls: (column().count() - values().count()) as u64,
        distinct: distinct.len() as u64,
        min: text(smallest),
        max: text(largest),
    }
}

/// Numbers by value, all else by code point.
fn compare(a: &Cell, b: &Cell) -> std::cmp::Ordering {
    match (a, b) {
        (Cell::Int(a), Cell::Int(b)) => a.cmp(b),
        (Cell::Float(a), Cell::Float(b)) => a.total_cmp(b),
        (Cell::Bool(a), Cell::Bool(b)) => a.cmp(b),
        (
            Cell::Date(a) | Cell::Text(a) | Cell::Other(a),
            Cell::Date(b) | Cell::Text(b) | Cell::Other(b),
        ) => a.cmp(b),
        _ => std::cmp::Ordering::Equal, // mixed columns have no order and show none
    }
}

/// Equal cells have equal hashes; unequal ones differ but for a chance of 1 in 10⁹ per table.
fn hash(cells: &[Cell]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for cell in cells {
        std::mem::discriminant(cell).hash(&mut hasher);
        match cell {
            Cell::Null => {}
            Cell::Int(n) => n.hash(&mut hasher),
            Cell::Float(x) => (x + 0.0).to_bits().hash(&mut hasher), // -0 is 0
            Cell::Bool(b) => b.hash(&mut hasher),
            Cell::Date(text) | Cell::Text(text) | Cell::Other(text) => text.hash(&mut hasher),
        }
    }
    hasher.finish()
}
