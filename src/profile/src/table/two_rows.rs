//! Headers of two rows in delimited text: names above groups of columns, and a name for each column below them.
//!
//! Text has no merged cells, so an empty name in the upper row counts as the name to its left, as spreadsheets export
//! merged cells. A header of one row with a nameless column looks alike; only numbers below words tell them apart.

use super::value::YEARS;
use super::{Cell, RawTable, is_missing};

/// The two rows of a header.
pub(super) struct TwoRows {
    /// The upper and the lower name of each column, joined by a space.
    pub(super) names: Vec<String>,
    /// As in the read options.
    pub(super) is_regular: bool,
    /// Columns of groups, and whether their lower name is a year.
    grouped: Vec<(usize, bool)>,
}

impl TwoRows {
    /// Joins two rows; `None` if they cannot be a header.
    pub(super) fn join(upper: &[String], lower: &[String]) -> Option<Self> {
        if upper.len() != lower.len() {
            return None;
        }
        let (above, below) = (upper, lower);
        let (upper, lower) = (labels(upper)?, labels(lower)?);
        let (mut names, mut grouped) = (Vec::new(), Vec::new());
        // The name above the columns so far, and the first of them.
        let mut group: Option<(&str, usize)> = None;
        for (column, (above, below)) in upper.iter().zip(&lower).enumerate() {
            group = match above {
                Some(name) => Some((name, column)),
                None => group.filter(|_| below.is_some() && lower[column - 1].is_some()),
            };
            names.push(match (group, *below) {
                (Some((above, _)), Some(below)) => format!("{above} {below}"),
                (Some((one, _)), None) | (None, Some(one)) => one.to_owned(),
                (None, None) => return None,
            });
            if let Some((_, first)) = group.filter(|(_, first)| *first < column) {
                grouped.extend([first, column]);
            }
        }
        grouped.sort_unstable();
        grouped.dedup();
        let is_year = |column: usize| lower[column].is_some_and(|name| name.parse::<i64>().is_ok());
        let grouped: Vec<_> = grouped
            .into_iter()
            .map(|column| (column, is_year(column)))
            .collect();
        let is_regular = is_filled(texts(above), texts(below), &names);
        (!grouped.is_empty()).then_some(Self {
            names,
            is_regular,
            grouped,
        })
    }

    /// Whether the values below prove that the lower row is a header: in a group are numbers below a word, or numbers that
    /// are no years below a year. The read options of the table are known.
    pub(super) fn is_proven(&self, table: &RawTable) -> bool {
        self.grouped.iter().any(|(column, is_year)| {
            let name = &table.names[*column];
            let read = &table.read;
            let foreign = read.decimal_comma.contains(name) || read.numbers.contains_key(name);
            let cells = table.cells.iter().skip(*column).step_by(table.names.len());
            let texts: Vec<&str> = cells
                .filter_map(|cell| match cell {
                    Cell::Text(text) => Some(text.trim()),
                    _ => None,
                })
                .collect();
            let numeric = foreign || texts.iter().all(|text| text.parse::<f64>().is_ok());
            texts.len() >= 2 && numeric && !(*is_year && texts.iter().all(|text| is_a_year(text)))
        })
    }
}

fn texts(row: &[String]) -> impl Iterator<Item = &str> {
    row.iter().map(String::as_str)
}

/// Whether pandas gets these names from the two rows as they are written, if it fills the upper one from the left and joins
/// both.
pub(super) fn is_filled<'a>(
    upper: impl Iterator<Item = &'a str>,
    lower: impl Iterator<Item = &'a str>,
    names: &[String],
) -> bool {
    let is_read = |field: &str| field.is_empty() || !is_missing(field);
    let mut above = "";
    let mut pairs = upper.zip(lower).zip(names);
    pairs.all(|((upper, lower), name)| {
        if !upper.is_empty() {
            above = upper;
        }
        let joined = format!("{above} {lower}");
        !above.is_empty() && is_read(upper) && is_read(lower) && joined.trim() == name
    })
}

/// The names of a row; `None` if it has a value that is no name.
fn labels(row: &[String]) -> Option<Vec<Option<&str>>> {
    row.iter().map(|field| label(field)).collect()
}

/// A name, or nothing; `None` for a value that is no name.
fn label(field: &str) -> Option<Option<&str>> {
    match field.trim() {
        "" => Some(None),
        value if is_missing(value) || value.starts_with(['#', '%']) => None,
        year if is_a_year(year) => Some(Some(year)),
        number if number.parse::<f64>().is_ok() => None,
        name => Some(Some(name)),
    }
}

fn is_a_year(text: &str) -> bool {
    text.parse()
        .is_ok_and(|number: i64| YEARS.contains(&number))
}
