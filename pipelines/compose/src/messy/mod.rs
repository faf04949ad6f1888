//! Writes a table as people hand it on: decimal commas, days first, units in cells, two header rows, merged cells, titles
//! above the table, other encodings. The query says nothing of it; the reference is computed from the table itself.

mod sheet;

use std::collections::HashSet;

use polars::prelude::{AnyValue, Column, DataFrame, DataType, SortMultipleOptions};
use pybench_types::read_options::ReadOptions;
use pybench_types::task::{FileKind, Language};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::draw::quotable;
use crate::frame::{Class, Frame};
use crate::rename::{self, Naming};
use sheet::{Area, Cell, Sheet};

/// Most rows of a file that is written so.
const MAX_ROWS: usize = 1_500;

/// A file and the table in it, whose columns have the names that a reader of the file gives them.
pub(crate) struct Messy {
    pub kind: FileKind,
    pub bytes: Vec<u8>,
    pub data: DataFrame,
}

/// How the values and the header are written.
#[derive(Debug)]
struct Habits {
    /// A decimal comma, and the sign between thousands.
    comma: Option<Option<char>>,
    /// A column of numbers and the unit of its cells.
    unit: Option<(String, &'static str)>,
    /// The sign in days that are written day first.
    day_first: Option<char>,
    /// A column of days of which only some are written day first, with points.
    mixed: Option<String>,
    /// Names above two columns or more, with the first of them and their number.
    group: Option<(String, usize, usize)>,
    /// A column whose equal values are merged in a workbook.
    merged: Option<String>,
    /// A line above the table in a workbook.
    title: Option<String>,
    encoding: Encoding,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Utf16,
    Latin1,
}

/// Writes a table in a way that differs from a plain file; `None` if what was drawn does not suit the table.
pub(crate) fn written(data: &DataFrame, naming: Naming, rng: &mut ChaCha8Rng) -> Option<Messy> {
    let kind = *[FileKind::Csv, FileKind::Csv, FileKind::Xlsx].choose(rng)?;
    let frame = Frame::new(data.head(Some(MAX_ROWS)));
    let habits = Habits::draw(&frame, kind, naming, rng);
    let data = habits.arranged(&frame.data)?;
    let sheet = habits.sheet(&data, &frame.data, kind)?;
    let bytes = match (kind, habits.encoding) {
        (FileKind::Xlsx, _) => sheet.xlsx()?,
        (_, Encoding::Utf8) => sheet.csv().into_bytes(),
        (_, Encoding::Utf16) => utf16(&sheet.csv()),
        (_, Encoding::Latin1) => latin1(&sheet.csv())?,
    };
    Some(Messy { kind, bytes, data })
}

impl Habits {
    fn draw(frame: &Frame, kind: FileKind, naming: Naming, rng: &mut ChaCha8Rng) -> Self {
        let is_workbook = kind == FileKind::Xlsx;
        let numbers = frame.of_class(Class::Number);
        let mut comma = *[None, Some(None), Some(Some('.')), Some(Some('.'))]
            .choose(rng)
            .unwrap_or(&None);
        // Numbers of a workbook are seldom texts.
        comma = comma.filter(|_| !is_workbook || rng.random_bool(0.3));
        let units = ["kg", "km", "kWh", "°C", "€", "EUR"];
        let unit = numbers.choose(rng).zip(units.choose(rng));
        let unit = unit.map(|(name, unit)| (name.clone(), *unit));
        let encodings = [
            Encoding::Utf8,
            Encoding::Utf8,
            Encoding::Utf16,
            Encoding::Latin1,
        ];
        let mut taken = HashSet::new();
        Self {
            comma,
            unit: unit.filter(|_| rng.random_bool(0.4)),
            day_first: Some(*['.', '/'].choose(rng).unwrap_or(&'.')),
            group: group(frame, naming, rng).filter(|_| rng.random_bool(0.5)),
            merged: merged(frame, rng).filter(|_| is_workbook && rng.random_bool(0.6)),
            title: (is_workbook && rng.random_bool(0.5))
                .then(|| rename::unused(&mut taken, rng, |rng| naming.column(rng))),
            encoding: match is_workbook {
                true => Encoding::Utf8,
                false => *encodings.choose(rng).unwrap_or(&Encoding::Utf8),
            },
            mixed: frame
                .of_class(Class::Date)
                .choose(rng)
                .filter(|_| rng.random_bool(0.4))
                .cloned(),
        }
    }

    /// The table with its rows in the order and its columns under the names of the file.
    fn arranged(&self, data: &DataFrame) -> Option<DataFrame> {
        let mut data = match &self.merged {
            Some(name) => {
                let stable = SortMultipleOptions::default().with_maintain_order(true);
                data.sort([name.as_str()], stable).ok()?
            }
            None => data.clone(),
        };
        if let Some((upper, first, count)) = &self.group {
            let names = data.get_column_names_owned();
            for name in &names[*first..first + count] {
                let joined = format!("{upper} {name}");
                quotable(&joined).then_some(())?;
                data.rename(name, joined.into()).ok()?;
            }
        }
        Some(data)
    }

    /// `data` is what the file holds; the names in the lower row of its header are those of `plain`.
    fn sheet(&self, data: &DataFrame, plain: &DataFrame, kind: FileKind) -> Option<Sheet> {
        let frame = Frame::new(data.clone());
        let names = plain.get_column_names_owned();
        let columns = data.columns().iter().zip(&names);
        let columns = columns
            .map(|(column, name)| self.cells(column, name, frame.class(column.name()), kind));
        let columns: Vec<Vec<Cell>> = columns.collect();
        let rows = (0..data.height())
            .map(|row| columns.iter().map(|column| column[row].clone()).collect());
        let text = |name: &str| match name {
            "" => Cell::Empty,
            name => Cell::Text(name.to_owned()),
        };
        let mut sheet = Sheet {
            rows: Vec::new(),
            merged: Vec::new(),
            delimiter: if self.comma.is_some() { ';' } else { ',' },
        };
        if let Some(title) = &self.title {
            sheet.rows.push(vec![text(title)]);
        }
        match &self.group {
            None => sheet
                .rows
                .push(names.iter().map(|name| text(name)).collect()),
            Some((upper, first, count)) => {
                let inside = |at: usize| (*first..first + count).contains(&at);
                let places = names.iter().enumerate();
                let above = places.clone().map(|(at, name)| match inside(at) {
                    true if at == *first => text(upper),
                    true => Cell::Empty,
                    false => text(name),
                });
                let below =
                    places.map(|(at, name)| if inside(at) { text(name) } else { Cell::Empty });
                let top = sheet.rows.len();
                sheet.rows.push(above.collect());
                sheet.rows.push(below.collect());
                sheet.merged.push(Area::across(top, *first, *count));
            }
        }
        let top = sheet.rows.len();
        sheet.rows.extend(rows);
        if let Some(name) = &self.merged {
            let column = names.iter().position(|other| other == name)?;
            sheet.merge_equal(top, column);
        }
        Some(sheet)
    }

    /// The values of a column as the file writes them.
    fn cells(
        &self,
        column: &Column,
        name: &str,
        class: Option<Class>,
        kind: FileKind,
    ) -> Vec<Cell> {
        let unit = self
            .unit
            .as_ref()
            .filter(|(with_unit, _)| with_unit == name);
        let is_float = column.dtype() == &DataType::Float64;
        let values = (0..column.len()).map(|row| column.get(row).unwrap_or(AnyValue::Null));
        let mixed = self.mixed.as_deref() == Some(name);
        let cell = |row: usize, value: AnyValue<'_>| match (&value, class) {
            (AnyValue::Null, _) => Cell::Empty,
            (AnyValue::Boolean(truth), _) => Cell::Boolean(*truth),
            (_, Some(Class::Number)) => {
                let plain = value.to_string();
                let comma = self.comma.filter(|_| is_float);
                match (unit, comma) {
                    (Some((_, unit)), _) => {
                        Cell::Text(format!("{} {unit}", with_comma(&plain, comma)))
                    }
                    (None, Some(_)) => Cell::Text(with_comma(&plain, comma)),
                    (None, None) if kind == FileKind::Xlsx => Cell::Number(plain),
                    (None, None) => Cell::Text(plain),
                }
            }
            (value, Some(Class::Date)) => {
                let text = value.get_str().unwrap_or_default();
                let written = match mixed {
                    true => day_first(text, '.').filter(|_| row.is_multiple_of(3)),
                    false => self.day_first.and_then(|sign| day_first(text, sign)),
                };
                Cell::Text(written.unwrap_or_else(|| text.to_owned()))
            }
            (value, _) => Cell::Text(value.get_str().unwrap_or_default().to_owned()),
        };
        let values = values.enumerate();
        values.map(|(row, value)| cell(row, value)).collect()
    }
}

/// A day, day first.
fn day_first(iso: &str, sign: char) -> Option<String> {
    let mut parts = iso.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    Some(format!("{day}{sign}{month}{sign}{year}"))
}

/// A number with a decimal comma and perhaps a sign between thousands, or as it is.
fn with_comma(plain: &str, comma: Option<Option<char>>) -> String {
    let Some(thousands) = comma else {
        return plain.to_owned();
    };
    let (whole, decimals) = plain.split_once('.').unwrap_or((plain, "0"));
    let (minus, digits) = match whole.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", whole),
    };
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if let Some(sign) = thousands
            && at > 0
            && (digits.len() - at).is_multiple_of(3)
        {
            grouped.push(sign);
        }
        grouped.push(digit);
    }
    format!("{minus}{grouped},{decimals}")
}

/// A name above some columns of numbers that stand side by side.
fn group(frame: &Frame, naming: Naming, rng: &mut ChaCha8Rng) -> Option<(String, usize, usize)> {
    let names = frame.data.get_column_names_owned();
    let is_number = |at: usize| {
        names
            .get(at)
            .is_some_and(|name| frame.class(name) == Some(Class::Number))
    };
    let starts = (0..names.len()).filter(|at| is_number(*at) && is_number(at + 1));
    let first = *starts.collect::<Vec<_>>().choose(rng)?;
    let count = 2 + usize::from(is_number(first + 2) && rng.random_bool(0.5));
    let upper = naming.column(rng);
    // A group of all columns would be a title.
    (count < names.len()).then_some((upper, first, count))
}

/// A column of a few texts without gaps.
fn merged(frame: &Frame, rng: &mut ChaCha8Rng) -> Option<String> {
    let few = |name: &String| {
        frame.data.column(name).is_ok_and(|column| {
            let kinds = column.n_unique().unwrap_or(0);
            column.null_count() == 0 && (2..=12).contains(&kinds) && column.len() >= 4 * kinds
        })
    };
    let names: Vec<String> = frame
        .of_class(Class::Text)
        .into_iter()
        .filter(few)
        .collect();
    names.choose(rng).cloned()
}

fn utf16(text: &str) -> Vec<u8> {
    let marked = std::iter::once(0xfeff).chain(text.encode_utf16());
    marked.flat_map(u16::to_le_bytes).collect()
}

/// The bytes in ISO 8859-1; `None` if it lacks a character, or if the text is in ASCII.
fn latin1(text: &str) -> Option<Vec<u8>> {
    let byte = |c: char| match u32::from(c) {
        code @ (0..=0x7f | 0xa0..=0xff) => u8::try_from(code).ok(),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.chars().map(byte).collect();
    bytes.filter(|_| !text.is_ascii())
}

/// What the query says of the result, if it is a table or has dates, since the file does not write its values as the
/// check reads them.
pub(crate) fn note(
    reads: &[&ReadOptions],
    (is_table, has_dates): (bool, bool),
    language: Language,
) -> Option<&'static str> {
    let has_days = |read: &&ReadOptions| !(read.dates.is_empty() && read.mixed_dates.is_empty());
    let dates = has_dates && reads.iter().any(has_days);
    let foreign = |read: &&ReadOptions| !read.numbers.is_empty() || !read.decimal_comma.is_empty();
    let numbers = is_table && reads.iter().copied().any(|read| foreign(&read));
    Some(match (language, numbers, dates) {
        (_, false, false) => return None,
        (Language::En, true, false) => "In the result, write numbers plainly (1234.5).",
        (Language::En, false, true) => "In the result, write dates as YYYY-MM-DD.",
        (Language::En, true, true) => {
            "In the result, write numbers plainly (1234.5) and dates as YYYY-MM-DD."
        }
        (Language::Zh, true, false) => "结果中的数字写成普通形式（1234.5）。",
        (Language::Zh, false, true) => "结果中的日期写成 YYYY-MM-DD。",
        (Language::Zh, true, true) => "结果中的数字写成普通形式（1234.5），日期写成 YYYY-MM-DD。",
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng;

    use super::*;
    use crate::alike::same;

    fn table() -> DataFrame {
        let rows = 60;
        let at = |i: usize| (i * 7919 + 13) % 1009;
        let day = |i: usize| {
            format!(
                "202{}-{:02}-{:02}",
                at(i) % 4,
                at(i) % 12 + 1,
                at(i) % 28 + 1
            )
        };
        let columns = vec![
            Column::new(
                "Ort".into(),
                (0..rows)
                    .map(|i| ["Nord", "Süd", "Ost"][at(i) % 3])
                    .collect::<Vec<_>>(),
            ),
            Column::new(
                "price".into(),
                (0..rows)
                    .map(|i| at(i) as f64 * 12.5 - 900.25)
                    .collect::<Vec<_>>(),
            ),
            Column::new(
                "mass".into(),
                (0..rows)
                    .map(|i| (i % 7 != 3).then_some(at(i) as f64 / 4.0))
                    .collect::<Vec<_>>(),
            ),
            Column::new(
                "count".into(),
                (0..rows).map(|i| at(i) as i64).collect::<Vec<_>>(),
            ),
            Column::new("day".into(), (0..rows).map(day).collect::<Vec<_>>()),
        ];
        DataFrame::new(rows, columns).unwrap()
    }

    #[test]
    fn what_is_written_messily_is_read_back_in_most_ways() {
        let (mut seen, mut read_back) = (BTreeSet::new(), 0);
        for seed in 0..60 {
            let Some(messy) = written(
                &table(),
                Naming::default(),
                &mut ChaCha8Rng::seed_from_u64(seed),
            ) else {
                continue;
            };
            let format = pybench_profile::profile(messy.kind, &messy.bytes).format();
            let Some((data, _)) = pybench_profile::frame(messy.kind, &messy.bytes) else {
                continue;
            };
            if !same(&data, &messy.data, true) {
                continue;
            }
            read_back += 1;
            let format = format.unwrap_or_default();
            let read = &format.read;
            let ways = [
                (!read.decimal_comma.is_empty(), "comma"),
                (!read.numbers.is_empty(), "units"),
                (!read.dates.is_empty(), "dates"),
                (!read.mixed_dates.is_empty(), "mixed dates"),
                (!read.names.is_empty(), "two rows"),
                (!read.filled.is_empty(), "merged"),
                (read.skip_rows > 0, "title"),
            ];
            seen.extend(
                ways.into_iter()
                    .filter(|(is_so, _)| *is_so)
                    .map(|(_, way)| way.to_owned()),
            );
            seen.extend(format.encoding);
        }
        assert!(read_back >= 30, "{read_back}");
        for way in [
            "comma",
            "units",
            "dates",
            "mixed dates",
            "two rows",
            "merged",
            "title",
            "utf-16",
            "latin-1",
        ] {
            assert!(seen.contains(way), "no {way}: {seen:?}");
        }
    }

    #[test]
    fn numbers_are_grouped_from_the_comma() {
        let german = Some(Some('.'));
        assert_eq!(with_comma("-1234567.5", german), "-1.234.567,5");
        assert_eq!(with_comma("123", german), "123,0");
        assert_eq!(with_comma("1234.25", Some(None)), "1234,25");
        assert_eq!(with_comma("1234.25", None), "1234.25");
    }
}
