//! How pandas reads single texts of a csv file.

use std::sync::LazyLock;

use regex::Regex;

use super::Cell;

/// Whole numbers that may be the name of a column below another name.
pub(super) const YEARS: std::ops::RangeInclusive<i64> = 1900..=2100;

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

pub(super) fn trimmed(text: &str) -> &str {
    text.trim_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c'])
}

pub(super) fn parse_int(text: &str) -> Option<Cell> {
    trimmed(text).parse().ok().map(Cell::Int)
}

pub(super) fn parse_float(text: &str) -> Option<Cell> {
    let number: f64 = trimmed(text).parse().ok()?;
    // pandas reads `NAN` and an infinity with blanks around it as text.
    let is_number = number.is_finite() || (number.is_infinite() && trimmed(text) == text);
    is_number.then_some(Cell::Float(number))
}

pub(super) fn parse_bool(text: &str) -> Option<Cell> {
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
