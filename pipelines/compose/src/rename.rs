//! Gives a table other names and values, so that a student has to copy them instead of knowing them.
//!
//! Columns and categories get invented names, numbers are scaled and shifted, days are shifted. The result is a new file;
//! a task over it is written for these names from the start, so query, code and reference agree.

use std::collections::{BTreeMap, HashMap, HashSet};

use polars::prelude::{Column, DataFrame, DataType, PolarsResult};
use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use crate::frame::{Class, Frame};

/// Most rows of a renamed table; the first ones are kept.
const MAX_ROWS: usize = 2_000;
/// Most columns.
const MAX_COLUMNS: usize = 14;
/// Text columns with more values keep them: they are names and free text.
const MAX_CATEGORIES: usize = 60;

const NOUNS: [&str; 48] = [
    "amount",
    "area",
    "batch",
    "branch",
    "budget",
    "code",
    "cost",
    "depth",
    "device",
    "distance",
    "duration",
    "energy",
    "grade",
    "group",
    "height",
    "humidity",
    "input",
    "item",
    "length",
    "level",
    "load",
    "margin",
    "mass",
    "order",
    "output",
    "period",
    "plant",
    "points",
    "power",
    "pressure",
    "price",
    "quantity",
    "rate",
    "region",
    "result",
    "score",
    "sector",
    "share",
    "site",
    "source",
    "speed",
    "stage",
    "status",
    "stock",
    "temperature",
    "team",
    "unit",
    "weight",
];
const FOREIGN: [&str; 20] = [
    "Menge",
    "Straße",
    "Größe",
    "Prüfung",
    "Ort",
    "prénom",
    "durée",
    "coût",
    "região",
    "año",
    "código",
    "città",
    "数量",
    "地区",
    "价格",
    "等级",
    "日期",
    "名称",
    "Область",
    "Цена",
];
/// Number of ways to write a column's name.
const FORMS: i32 = 12;
/// The one of them that is foreign.
const FOREIGN_FORM: i32 = 8;
const SYLLABLES: [&str; 28] = [
    "ba", "ce", "di", "fo", "gu", "ha", "jo", "ka", "le", "mi", "no", "pu", "ra", "se", "ti", "vo",
    "wu", "xa", "ye", "zi", "bran", "del", "fin", "gor", "lun", "mer", "tas", "vik",
];

/// How names are invented.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Naming {
    /// Share of the names in other languages and scripts; absent: a twelfth of columns and files, a fifth of categories.
    pub foreign: Option<f64>,
}

impl Naming {
    /// A name in one of the ways in which people name columns.
    pub(crate) fn column(self, rng: &mut ChaCha8Rng) -> String {
        match self.is_foreign(rng) {
            None => column_name(rng),
            Some(true) => foreign_column(rng),
            Some(false) => {
                let (a, b) = (noun(rng), noun(rng));
                let form = rng.random_range(0..FORMS - 1);
                column_of(form + i32::from(form >= FOREIGN_FORM), (&a, &b), rng)
            }
        }
    }

    /// A name of a category.
    pub(crate) fn category(self, rng: &mut ChaCha8Rng) -> String {
        match self.is_foreign(rng) {
            None => category_name(rng),
            Some(true) => foreign_category(rng),
            Some(false) => match rng.random_range(0..4) {
                0 => numbered_category(rng),
                1 => format!("{} {}", word(rng), word(rng)),
                _ => word(rng),
            },
        }
    }

    /// A file name without its extension.
    pub(crate) fn file_stem(self, rng: &mut ChaCha8Rng) -> String {
        let name = self.column(rng);
        match rng.random_range(0..4) {
            0 => format!("{name}_{}", rng.random_range(1..2030)),
            1 => format!("{}_{name}", word(rng)),
            2 => format!("{name} {}", word(rng)),
            _ => name,
        }
        .replace(['/', '%'], "-")
    }

    fn is_foreign(self, rng: &mut ChaCha8Rng) -> Option<bool> {
        self.foreign
            .map(|share| rng.random_bool(share.clamp(0.0, 1.0)))
    }
}

/// The table with other names and values; `None` if it has too few columns that can be used.
///
/// # Errors
/// polars refuses an operation.
pub(crate) fn renamed(
    frame: &Frame,
    naming: Naming,
    rng: &mut ChaCha8Rng,
) -> PolarsResult<Option<Frame>> {
    let mut taken = HashSet::new();
    let mut columns = Vec::new();
    for column in frame.data.columns() {
        let Some(class) = frame.class(column.name()) else {
            continue;
        };
        if columns.len() == MAX_COLUMNS {
            break;
        }
        let name = unused(&mut taken, rng, |rng| naming.column(rng));
        let column = column.head(Some(MAX_ROWS));
        let column = match class {
            Class::Number => numbers(&column, rng)?,
            Class::Text => texts(&column, naming, rng)?,
            Class::Date => days(&column, rng)?,
            Class::Boolean => column,
        };
        columns.push(column.with_name(name.into()));
    }
    if columns.len() < 2 {
        return Ok(None);
    }
    let rows = columns.first().map_or(0, Column::len);
    Ok(Some(Frame::new(DataFrame::new(rows, columns)?)))
}

/// As [`renamed`], of a table whose keys another file has too: they come first and keep their values. `others` is the
/// number of the other columns at most. Returns also the names of the keys.
pub(crate) fn renamed_with_keys(
    frame: &Frame,
    keys: &[&str],
    others: usize,
    naming: Naming,
    rng: &mut ChaCha8Rng,
) -> Option<(Frame, Vec<String>)> {
    let of_key = |key: &&str| frame.data.column(key).ok().cloned();
    let kept: Vec<Column> = keys.iter().map(of_key).collect::<Option<_>>()?;
    let rest = frame.data.columns().iter();
    let rest = rest.filter(|column| !keys.contains(&column.name().as_str()));
    let columns: Vec<Column> = kept.iter().chain(rest.take(others)).cloned().collect();
    let ordered = Frame::new(DataFrame::new(frame.height(), columns).ok()?);
    let found = renamed(&ordered, naming, rng).ok()??;
    let mut columns = found.data.columns().to_vec();
    let mut names = Vec::with_capacity(keys.len());
    for (column, kept) in columns.iter_mut().zip(&kept) {
        let name = column.name().clone();
        names.push(name.to_string());
        *column = kept.head(Some(MAX_ROWS)).with_name(name);
    }
    let data = DataFrame::new(found.height(), columns).ok()?;
    Some((Frame::new(data), names))
}

/// A name that was not given yet; cases are not told apart.
pub(crate) fn unused(
    taken: &mut HashSet<String>,
    rng: &mut ChaCha8Rng,
    draw: impl Fn(&mut ChaCha8Rng) -> String,
) -> String {
    loop {
        let name = draw(rng);
        if taken.insert(name.to_lowercase()) {
            return name;
        }
    }
}

pub(crate) fn word(rng: &mut ChaCha8Rng) -> String {
    let count = rng.random_range(2..=3);
    (0..count)
        .filter_map(|_| SYLLABLES.choose(rng).copied())
        .collect()
}

fn noun(rng: &mut ChaCha8Rng) -> String {
    match rng.random_bool(0.5) {
        true => NOUNS
            .choose(rng)
            .map_or_else(String::new, |noun| (*noun).to_owned()),
        false => word(rng),
    }
}

pub(crate) fn column_name(rng: &mut ChaCha8Rng) -> String {
    let (a, b) = (noun(rng), noun(rng));
    let form = rng.random_range(0..FORMS);
    column_of(form, (&a, &b), rng)
}

/// A name of two words in one of [`FORMS`] ways.
fn column_of(form: i32, (a, b): (&str, &str), rng: &mut ChaCha8Rng) -> String {
    let capital = |text: &str| {
        let mut letters = text.chars();
        letters
            .next()
            .map_or_else(String::new, |c| c.to_uppercase().chain(letters).collect())
    };
    match form {
        0 | 1 => format!("{a}_{b}"),
        2 => format!("{} {}", capital(a), capital(b)),
        3 => format!("{a}{}", capital(b)),
        4 => format!("{a} ({b})"),
        5 => format!("{a}.{b}"),
        6 => format!("{}{}", a.to_uppercase(), rng.random_range(1..99)),
        7 => format!("{a}-{b}"),
        FOREIGN_FORM => foreign_column(rng),
        9 => format!("{a} {b} {}", word(rng)),
        10 => capital(a),
        _ => format!("{a}_{}", word(rng)),
    }
}

fn foreign_column(rng: &mut ChaCha8Rng) -> String {
    FOREIGN.choose(rng).map_or_else(String::new, |name| {
        format!("{name}_{}", rng.random_range(1..9))
    })
}

fn foreign_category(rng: &mut ChaCha8Rng) -> String {
    FOREIGN.choose(rng).map_or_else(String::new, |name| {
        format!("{name} {}", rng.random_range(1..99))
    })
}

fn numbered_category(rng: &mut ChaCha8Rng) -> String {
    format!("{}-{}", word(rng).to_uppercase(), rng.random_range(1..999))
}

/// Numbers on another scale, with as many decimals as before.
fn numbers(column: &Column, rng: &mut ChaCha8Rng) -> PolarsResult<Column> {
    let factor: f64 = *[0.5, 2.0, 3.0, 5.0, 10.0].choose(rng).unwrap_or(&2.0);
    let shift = rng.random_range(0..50) as f64;
    Ok(match column.dtype() {
        DataType::Int64 => {
            let moved = |x: i64| {
                x.checked_mul(factor.ceil() as i64)?
                    .checked_add(shift as i64)
            };
            let values = column.i64()?.iter().map(|value| value.and_then(moved));
            Column::new(column.name().clone(), values.collect::<Vec<Option<i64>>>())
        }
        _ => {
            let rounded = |x: f64| format!("{:.6}", x * factor + shift).parse().unwrap_or(x);
            let values = column.f64()?.iter().map(|value| value.map(rounded));
            Column::new(column.name().clone(), values.collect::<Vec<Option<f64>>>())
        }
    })
}

/// Categories under other names, each value always the same; other texts stay.
fn texts(column: &Column, naming: Naming, rng: &mut ChaCha8Rng) -> PolarsResult<Column> {
    if column.n_unique()? > MAX_CATEGORIES {
        return Ok(column.clone());
    }
    let mut values: Vec<&str> = column.str()?.iter().flatten().collect();
    values.sort_unstable();
    values.dedup();
    let mut taken = HashSet::new();
    let names: HashMap<&str, String> = values
        .into_iter()
        .map(|value| {
            let name = unused(&mut taken, rng, |rng| naming.category(rng));
            (value, name)
        })
        .collect();
    let renamed = column
        .str()?
        .iter()
        .map(|value| value.and_then(|value| names.get(value)).map(String::as_str));
    Ok(Column::new(
        column.name().clone(),
        renamed.collect::<Vec<_>>(),
    ))
}

pub(crate) fn category_name(rng: &mut ChaCha8Rng) -> String {
    match rng.random_range(0..5) {
        0 => numbered_category(rng),
        1 => foreign_category(rng),
        2 => format!("{} {}", word(rng), word(rng)),
        _ => word(rng),
    }
}

/// All days by the same number of years and days later.
fn days(column: &Column, rng: &mut ChaCha8Rng) -> PolarsResult<Column> {
    let years = rng.random_range(-6..=6);
    let mut shifted = BTreeMap::new();
    let later = |day: &str| {
        let year: i32 = day.get(..4)?.parse().ok()?;
        // The 29th of February does not exist in all years.
        let rest = if day.ends_with("02-29") {
            "-02-28"
        } else {
            day.get(4..)?
        };
        Some(format!("{:04}{rest}", year + years))
    };
    for day in column.str()?.iter().flatten() {
        shifted.entry(day.to_owned()).or_insert_with(|| later(day));
    }
    let values = column
        .str()?
        .iter()
        .map(|day| day.and_then(|day| shifted.get(day)?.clone()));
    Ok(Column::new(
        column.name().clone(),
        values.collect::<Vec<Option<String>>>(),
    ))
}

/// A table as a csv file with this separator.
pub(crate) fn csv(data: &DataFrame, separator: char) -> String {
    let quote = |text: &str| {
        let plain =
            !text.contains([separator, '"', '\n', '\r']) && text.trim() == text && !text.is_empty();
        if plain {
            text.to_owned()
        } else {
            format!("\"{}\"", text.replace('"', "\"\""))
        }
    };
    let separator = separator.to_string();
    let names = data.get_column_names();
    let mut lines = vec![
        names
            .iter()
            .map(|name| quote(name))
            .collect::<Vec<_>>()
            .join(&separator),
    ];
    for record in crate::frame::records(data) {
        let cells = record.values().map(|value| match value {
            serde_json::Value::Null => String::new(),
            serde_json::Value::String(text) => quote(text),
            serde_json::Value::Bool(true) => "True".into(),
            serde_json::Value::Bool(false) => "False".into(),
            number => number.to_string(),
        });
        lines.push(cells.collect::<Vec<_>>().join(&separator));
    }
    lines.join("\n") + "\n"
}

/// A table as JSON: an array of records, or one record on each line.
pub(crate) fn json(data: &DataFrame, lines: bool) -> String {
    let records = crate::frame::records(data)
        .into_iter()
        .map(serde_json::Value::Object);
    match lines {
        false => serde_json::Value::Array(records.collect()).to_string(),
        true => records.map(|record| record.to_string() + "\n").collect(),
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn the_share_of_foreign_names_is_as_asked() {
        let is_foreign = |name: &String| FOREIGN.iter().any(|foreign| name.starts_with(foreign));
        let count = |foreign: Option<f64>, draw: fn(Naming, &mut ChaCha8Rng) -> String| {
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let names = (0..1000).map(|_| draw(Naming { foreign }, &mut rng));
            names.filter(is_foreign).count()
        };
        for draw in [Naming::column, Naming::category] {
            assert_eq!(count(Some(0.0), draw), 0);
            assert_eq!(count(Some(1.0), draw), 1000);
            assert!((10..60).contains(&count(Some(0.03), draw)));
        }
        assert!((50..120).contains(&count(None, Naming::column)));
        assert!((150..250).contains(&count(None, Naming::category)));
    }
}
