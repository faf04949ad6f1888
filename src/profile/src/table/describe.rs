//! Turns a raw table into a profile: infers types as pandas does, then computes statistics with polars.

use polars::prelude::{
    AnyValue, BooleanChunked, Column, DataFrame, Float64Chunked, Int64Chunked, IntoColumn,
    NewChunkedArray, PolarsResult, Scalar, StringChunked,
};
use pybench_types::task::{ColumnKind, ColumnProfile, TableProfile};

use super::value::{is_iso_date, parse_bool, parse_float, parse_int, rows_at_once, trimmed};
use super::{Cell, RawTable, comma, notation};

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

/// Whether all texts are numbers with a decimal comma, or dates that are written day first, or some of them.
fn is_foreign(column: &[&mut Cell]) -> bool {
    let texts = column.iter().filter_map(|cell| match &**cell {
        Cell::Text(text) => Some(&**text),
        _ => None,
    });
    let texts: Vec<&str> = texts.collect();
    comma::decimal_comma(&texts).is_some()
        || notation::day_first(&texts).is_some()
        || notation::has_mixed_days(&texts)
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

fn keep_large(text: &str) -> Option<Cell> {
    Some(Cell::Other(text.into()))
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
