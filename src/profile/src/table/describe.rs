//! Turns a raw table into a profile: infers types as pandas does, then computes statistics with polars.

use std::sync::LazyLock;

use polars::prelude::{
    AnyValue, BooleanChunked, Column, DataFrame, Float64Chunked, Int64Chunked, IntoColumn,
    NewChunkedArray, PolarsResult, Scalar, StringChunked,
};
use pybench_types::task::{ColumnKind, ColumnProfile, TableProfile};
use regex::Regex;

use super::{Cell, RawTable, notation};

/// Limits of the sample: rows, and characters per cell.
const SAMPLE_ROWS: usize = 5;
const SAMPLE_TEXT: usize = 100;

pub(super) fn describe(mut table: RawTable) -> Result<TableProfile, String> {
    let sample = sample(&table);
    let unreadable = |error: polars::error::PolarsError| error.to_string();
    let (frame, kinds) = typed(&mut table).map_err(unreadable)?;
    let columns = frame.columns().iter().zip(&kinds);
    let columns = columns.map(|(column, kind)| describe_column(column, *kind));
    Ok(TableProfile {
        rows: frame.height() as u64,
        columns: columns.collect::<PolarsResult<_>>().map_err(unreadable)?,
        duplicate_rows: repeated_rows(&frame).map_err(unreadable)?,
        sample,
        tables: table.tables,
        delimiter: table.delimiter,
        encoding: table.encoding,
        read: table.read,
    })
}

/// The cells as typed columns, and the kinds of these.
pub(super) fn typed(table: &mut RawTable) -> PolarsResult<(DataFrame, Vec<ColumnKind>)> {
    notation::convert(table);
    let columns = 0..table.names.len();
    let kinds: Vec<ColumnKind> = columns.map(|index| unify_column(table, index)).collect();
    Ok((frame(table, &kinds)?, kinds))
}

/// The cells as typed columns. Values of a mixed column become text that includes the type, so that `1` and
/// `"1"` stay distinct.
fn frame(table: &RawTable, kinds: &[ColumnKind]) -> PolarsResult<DataFrame> {
    let columns = table.names.iter().zip(kinds).enumerate();
    let columns = columns.map(|(index, (name, kind))| {
        let cells = || table.cells.iter().skip(index).step_by(table.names.len());
        let name = name.as_str().into();
        match kind {
            ColumnKind::Integer => {
                Int64Chunked::from_iter_options(name, cells().map(Cell::int)).into_column()
            }
            ColumnKind::Float => {
                Float64Chunked::from_iter_options(name, cells().map(Cell::float)).into_column()
            }
            ColumnKind::Boolean => {
                BooleanChunked::from_iter_options(name, cells().map(Cell::boolean)).into_column()
            }
            ColumnKind::Date | ColumnKind::Text => {
                StringChunked::from_iter_options(name, cells().map(show)).into_column()
            }
            ColumnKind::Other => {
                let tagged = |cell: &Cell| (*cell != Cell::Null).then(|| format!("{cell:?}"));
                StringChunked::from_iter_options(name, cells().map(tagged)).into_column()
            }
        }
    });
    DataFrame::new(table.rows(), columns.collect())
}

/// The number of rows that repeat an earlier row.
fn repeated_rows(frame: &DataFrame) -> PolarsResult<u64> {
    let names = frame.get_column_names_owned();
    let different = frame.group_by(names)?.get_groups().len();
    Ok((frame.height() - different) as u64)
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

/// Infers the kind of a column and converts all its values to that kind, so that equal values compare equal.
fn unify_column(table: &mut RawTable, index: usize) -> ColumnKind {
    let width = table.names.len();
    let mut column: Vec<&mut Cell> = table.cells.iter_mut().skip(index).step_by(width).collect();
    if table.untyped {
        column.chunks_mut(rows_at_once(width)).for_each(type_texts);
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

/// Distinguishes dates from text. In a typed source (json, xlsx, …), text that consists of numbers only is
/// neither, because pandas may convert it to numbers; nor are numbers and dates in the notation of another country,
/// because text does not sort as they do.
fn text_kind(column: &[&mut Cell], untyped: bool) -> ColumnKind {
    let all = |test: fn(&str) -> bool| {
        column.iter().all(|cell| match &**cell {
            Cell::Text(text) => test(text),
            _ => true,
        })
    };
    if all(is_iso_date) {
        ColumnKind::Date
    } else if !untyped && (all(|text| text.trim().parse::<f64>().is_ok()) || is_foreign(column)) {
        ColumnKind::Other
    } else {
        ColumnKind::Text
    }
}

/// Whether all texts are numbers with a decimal comma, or dates that are written day first.
fn is_foreign(column: &[&mut Cell]) -> bool {
    let texts = column.iter().filter_map(|cell| match &**cell {
        Cell::Text(text) => Some(&**text),
        _ => None,
    });
    let texts: Vec<&str> = texts.collect();
    notation::decimal_comma(&texts).is_some() || notation::day_first(&texts).is_some()
}

/// The number of rows after which pandas decides on types again (`low_memory`). Columns whose parts
/// differ become mixed.
pub(super) fn rows_at_once(width: usize) -> usize {
    let limit = (1 << 20) / width.max(1);
    let mut rows = 1;
    while 2 * rows < limit {
        rows *= 2;
    }
    rows
}

/// Converts the texts of a part of a csv column to a type that fits all of them, if there is one.
fn type_texts(column: &mut [&mut Cell]) {
    let parse = {
        let texts = column.iter().filter_map(|cell| match &**cell {
            Cell::Text(text) => Some(&**text),
            _ => None,
        });
        let texts: Vec<&str> = texts.collect();
        let fits = |parse: fn(&str) -> Option<Cell>| texts.iter().all(|text| parse(text).is_some());
        match [parse_int, parse_float, parse_bool]
            .into_iter()
            .find(|parse| fits(*parse))
        {
            _ if exceeds_i64(&texts) => keep_large,
            Some(parse) => parse,
            None => return,
        }
    };
    for cell in column {
        if let Cell::Text(text) = &**cell {
            **cell = parse(text).unwrap_or(Cell::Null);
        }
    }
}

/// Whether pandas keeps the whole numbers of a column although one is beyond 64 bits with a sign: as unsigned
/// numbers, as Python's integers or as text. It does not where it meets another value before such a number.
fn exceeds_i64(texts: &[&str]) -> bool {
    let first = texts.iter().find(|text| parse_int(text).is_none());
    let tested = texts.iter().filter(|text| !trimmed(text).starts_with('-'));
    let mut tested =
        tested.take_while(|text| trimmed(text).parse::<u64>().is_ok() || !is_whole(text));
    first.is_some_and(|text| is_whole(text)) && tested.all(|text| is_whole(text))
}

fn is_whole(text: &str) -> bool {
    let text = trimmed(text);
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c'])
}

fn keep_large(text: &str) -> Option<Cell> {
    Some(Cell::Other(text.into()))
}

fn parse_int(text: &str) -> Option<Cell> {
    trimmed(text).parse().ok().map(Cell::Int)
}

pub(super) fn parse_float(text: &str) -> Option<Cell> {
    let number: f64 = trimmed(text).parse().ok()?;
    // pandas reads `NAN` and an infinity with blanks around it as text.
    let is_number = number.is_finite() || (number.is_infinite() && trimmed(text) == text);
    is_number.then_some(Cell::Float(number))
}

fn parse_bool(text: &str) -> Option<Cell> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Some(Cell::Bool(true)),
        "false" => Some(Cell::Bool(false)),
        _ => None,
    }
}

/// Whether a text is a full date in ISO 8601, with or without a time (`2024-05-01`, `2024-05-01T12:00:00Z`).
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

/// Profiles a column. Numbers are ordered by value, other values by code point; a column of mixed types has no
/// minimum and maximum.
fn describe_column(column: &Column, kind: ColumnKind) -> PolarsResult<ColumnProfile> {
    let nulls = column.null_count();
    let distinct = column.n_unique()? - usize::from(nulls > 0);
    let bound = |scalar: Scalar| match scalar.value() {
        AnyValue::Null => None,
        _ if kind == ColumnKind::Other => None,
        AnyValue::Int64(n) => show(&Cell::Int(*n)),
        AnyValue::Float64(x) => show(&Cell::Float(*x)),
        AnyValue::Boolean(b) => show(&Cell::Bool(*b)),
        text => Some(text.get_str()?.chars().take(SAMPLE_TEXT).collect()),
    };
    Ok(ColumnProfile {
        name: column.name().to_string(),
        kind,
        nulls: nulls as u64,
        distinct: distinct as u64,
        min: bound(column.min_reduce()?),
        max: bound(column.max_reduce()?),
    })
}
