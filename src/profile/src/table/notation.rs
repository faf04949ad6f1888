//! Recognizes numbers with a decimal comma (`1.018,64`, `1 018,64`), dates that are written day first (`31.12.2024`,
//! `31/12/2024`), and columns with dates in two forms (`31.12.2024`, `2024-12-31`) in text tables.
//!
//! A column is read in such a way only if its own values prove it: `1.018` may be a thousand or one, and `03/04/2024`
//! a day in March or in April. pandas has one notation for all numbers of a file, so a file in which columns contradict
//! each other, or could be read in two ways, is refused.

use pybench_types::read_options::ReadOptions;

use super::comma::decimal_comma;
use super::value::{is_iso_date, parse_float, parse_int, rows_at_once};
use super::{Cell, RawTable, amount};

/// How a text table writes its numbers and dates.
///
/// # Errors
/// The reason if pandas cannot read all of its numbers in one notation, or if a column could be read in two ways.
pub(super) fn recognize(table: &RawTable) -> Result<ReadOptions, String> {
    let mut read = ReadOptions::default();
    let mut others = Vec::new();
    for (index, name) in table.names.iter().enumerate() {
        let texts = texts(table, index);
        if let Some(format) = day_first(&texts) {
            read.dates.insert(name.clone(), format);
        } else if has_mixed_days(&texts) {
            read.mixed_dates.push(name.clone());
        } else if let Some(notation) = amount::with_currency(&texts) {
            read.numbers.insert(name.clone(), notation);
        } else if let Some(thousands) = decimal_comma(&texts) {
            if let (Some(one), Some(other)) = (read.thousands, thousands)
                && one != other
            {
                return Err(format!(
                    "column `{name}` separates thousands by {other:?}, another column by {one:?}"
                ));
            }
            read.thousands = read.thousands.or(thousands);
            read.decimal_comma.push(name.clone());
        } else {
            others.push((name, texts));
        }
    }
    if let Some(first) = read.decimal_comma.first() {
        let rows = rows_at_once(table.names.len());
        for (name, texts) in others {
            let unclear = texts
                .chunks(rows)
                .find_map(|part| unclear(part, read.thousands));
            if let Some(text) = unclear {
                return Err(format!(
                    "column `{first}` has decimal commas, but `{text}` in column `{name}` can be read in two ways; \
                     write all numbers of the file alike, with two digits after the comma for example"
                ));
            }
        }
    }
    Ok(read)
}

/// How the texts of a workbook or of json write numbers and dates: columns of nothing else.
pub(super) fn recognize_texts(table: &mut RawTable) {
    for (index, name) in table.names.iter().enumerate() {
        let mut column = table.cells.iter().skip(index).step_by(table.names.len());
        if !column.all(|cell| matches!(cell, Cell::Text(_) | Cell::Null)) {
            continue;
        }
        let texts = texts(table, index);
        if let Some(format) = day_first(&texts) {
            table.read.dates.insert(name.clone(), format);
        } else if has_mixed_days(&texts) {
            table.read.mixed_dates.push(name.clone());
        } else if let Some(notation) =
            amount::with_currency(&texts).or_else(|| amount::with_comma(&texts))
        {
            table.read.numbers.insert(name.clone(), notation);
        }
    }
}

fn texts(table: &RawTable, index: usize) -> Vec<&str> {
    let column = table.cells.iter().skip(index).step_by(table.names.len());
    let texts = column.filter_map(|cell| match cell {
        Cell::Text(text) => Some(&**text),
        _ => None,
    });
    texts.collect()
}

/// Rewrites the columns of the read options: numbers with a decimal point, dates as ISO 8601.
pub(super) fn convert(table: &mut RawTable) {
    let width = table.names.len();
    let (read, untyped) = (&table.read, table.untyped);
    for (index, name) in table.names.iter().enumerate() {
        let notation = read.numbers.get(name);
        let date = read.dates.contains_key(name) || read.mixed_dates.contains(name);
        let comma = read.decimal_comma.contains(name);
        if !comma && !date && notation.is_none() {
            continue;
        }
        for cell in table.cells.iter_mut().skip(index).step_by(width) {
            let Cell::Text(text) = cell else {
                continue;
            };
            let as_text = |text: String| Cell::Text(text.into());
            *cell = match notation.map(|notation| notation.plain(text)) {
                // Columns of csv are typed later.
                Some(plain) if untyped => as_text(plain),
                Some(plain) => number(&plain),
                None if comma => as_text(with_point(text, read.thousands)),
                None if is_iso_day(text) => continue,
                None => Day::parse(text).map_or(Cell::Null, |day| as_text(day.iso())),
            };
        }
    }
}

fn number(plain: &str) -> Cell {
    let number = parse_int(plain).or_else(|| parse_float(plain));
    number.unwrap_or(Cell::Null)
}

fn with_point(text: &str, thousands: Option<char>) -> String {
    let kept = text.chars().filter(|c| Some(*c) != thousands);
    kept.map(|c| if c == ',' { '.' } else { c }).collect()
}

/// A value of the column that one notation reads as a number and the other one in another way.
fn unclear<'a>(texts: &[&'a str], thousands: Option<char>) -> Option<&'a str> {
    let default = |text: &&str| parse_float(text).is_some();
    let comma = |text: &&str| parse_float(&with_point(text, thousands)).is_some();
    let number = !texts.is_empty() && (texts.iter().all(default) || texts.iter().all(comma));
    let mut texts = texts.iter().copied();
    let sign = |c: char| c == ',' || c == '.' || Some(c) == thousands;
    texts.find(|text| number && text.trim().contains(sign))
}

/// The `strftime` format of a column of days that are written day first. Points are used in no other order; with strokes
/// or hyphens, one of the days must be after the twelfth. With years of two digits this holds for points, too, and where
/// hyphens might be a short form of ISO 8601, one of the years can be no day.
pub(super) fn day_first(texts: &[&str]) -> Option<String> {
    let mut days = Vec::with_capacity(texts.len());
    for text in texts {
        days.push(Day::parse(text)?);
    }
    let Day { sign, short, .. } = *days.first()?;
    let late = days.iter().any(|day| day.day > 12);
    let no_day = days.iter().any(|day| !(1..=31).contains(&(day.year % 100)));
    let proven = match (short, sign) {
        (false, '.') => true,
        (true, '-') => late && no_day,
        _ => late,
    };
    let alike = days
        .iter()
        .all(|day| (day.sign, day.short) == (sign, short));
    let year = if short { "%y" } else { "%Y" };
    (proven && alike).then(|| format!("%d{sign}%m{sign}{year}"))
}

/// Whether all texts are days, some in ISO 8601 and some day first with points, which are used in no other order.
pub(super) fn has_mixed_days(texts: &[&str]) -> bool {
    let has_points = |text: &str| Day::parse(text).is_some_and(|day| day.sign == '.' && !day.short);
    let iso = texts.iter().filter(|text| is_iso_day(text)).count();
    let with_points = texts.iter().filter(|text| has_points(text)).count();
    iso > 0 && with_points > 0 && iso + with_points == texts.len()
}

/// Whether a text is a day in ISO 8601, without a time.
fn is_iso_day(text: &str) -> bool {
    text.len() == 10 && is_iso_date(text)
}

/// A day as `31.12.2024`, `31/12/2024`, `31-12-2024` or `31.12.24`.
#[derive(Clone, Copy)]
struct Day {
    day: u32,
    month: u32,
    year: u32,
    sign: char,
    /// Whether the year has two digits, in which case all parts have.
    short: bool,
}

impl Day {
    fn parse(text: &str) -> Option<Self> {
        let sign = text.chars().find(|c| !c.is_ascii_digit())?;
        let parts: Vec<&str> = text.split(sign).collect();
        let [day, month, year] = parts[..] else {
            return None;
        };
        let number = |text: &str, lengths: std::ops::RangeInclusive<usize>| {
            let valid = lengths.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
            valid.then(|| text.parse().ok()).flatten()
        };
        let short = year.len() == 2;
        let digits = if short { 2..=2 } else { 1..=2 };
        let date = Self {
            day: number(day, digits.clone())?,
            month: number(month, digits)?,
            year: match short {
                // As `%y` reads it.
                true => {
                    number(year, 2..=2).map(|year| year + if year < 69 { 2000 } else { 1900 })?
                }
                false => number(year, 4..=4)?,
            },
            sign,
            short,
        };
        (matches!(sign, '.' | '/' | '-') && is_iso_date(&date.iso())).then_some(date)
    }

    fn iso(&self) -> String {
        format!("{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn grouped(number: u64, sign: &str) -> String {
        let digits = number.to_string();
        let first = digits.len() % 3;
        let (head, tail) = digits.split_at(first);
        let groups = tail.as_bytes().chunks(3);
        let groups = groups.map(|group| String::from_utf8_lossy(group).into_owned());
        let head = (!head.is_empty()).then(|| head.to_owned());
        head.into_iter()
            .chain(groups)
            .collect::<Vec<_>>()
            .join(sign)
    }

    fn borrowed(texts: &[String]) -> Vec<&str> {
        texts.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_comma_proves_a_notation_only_where_it_cannot_separate_thousands() {
        for texts in [
            &["1.018,64"][..],
            &["0,125"],
            &["1018,640", "3"],
            &["12,5", "1.018"],
        ] {
            assert!(decimal_comma(texts).is_some(), "{texts:?}");
        }
        for texts in [
            &["1.018", "2.500"][..],
            &["1,018", "12,500"],
            &["1,018.64"],
            &["12,5", "1.5"],
            &["12,5", "x"],
            &["12,5", "18446744073709551616"],
            &["1.01,5"],
            &["1.018,64", "1 018,64"],
            &[",5"],
            &["5,"],
            &[],
        ] {
            assert_eq!(decimal_comma(texts), None, "{texts:?}");
        }
    }

    proptest! {
        #[test]
        fn whole_numbers_in_groups_prove_nothing(
            numbers in prop::collection::vec(0u64..10_000_000, 1..20), sign in prop::sample::select(vec![".", ",", " "])
        ) {
            let texts: Vec<String> = numbers.iter().map(|n| grouped(*n, sign)).collect();
            prop_assert_eq!(decimal_comma(&borrowed(&texts)), None);
        }

        #[test]
        fn numbers_with_two_decimals_are_read_back(
            cents in prop::collection::vec(-1_000_000_000i64..1_000_000_000, 1..20),
            sign in prop::sample::select(vec![".", " ", "\u{a0}", "\u{202f}", ""])
        ) {
            let write = |n: &i64| {
                let minus = if *n < 0 { "-" } else { "" };
                let n = n.unsigned_abs();
                format!("{minus}{},{:02}", grouped(n / 100, sign), n % 100)
            };
            let texts: Vec<String> = cents.iter().map(write).collect();
            let thousands = decimal_comma(&borrowed(&texts));
            prop_assert!(thousands.is_some());
            for (text, cents) in texts.iter().zip(cents) {
                let read: f64 = with_point(text, thousands.flatten()).parse().unwrap();
                prop_assert_eq!(read, cents as f64 / 100.0);
            }
        }

        #[test]
        fn english_numbers_are_never_read_with_a_comma(
            cents in prop::collection::vec(0u64..1_000_000_000, 1..20)
        ) {
            let write = |n: &u64| format!("{}.{:02}", grouped(n / 100, ","), n % 100);
            let texts: Vec<String> = cents.iter().map(write).collect();
            prop_assert_eq!(decimal_comma(&borrowed(&texts)), None);
        }

        #[test]
        fn days_count_as_day_first_only_if_the_column_proves_it(
            days in prop::collection::vec((1u32..=28, 1u32..=12, 1900u32..2100), 1..20),
            sign in prop::sample::select(vec!['.', '/', '-'])
        ) {
            let texts: Vec<String> = days.iter().map(|(d, m, y)| format!("{d:02}{sign}{m}{sign}{y}")).collect();
            let proven = sign == '.' || days.iter().any(|(day, ..)| *day > 12);
            let format = format!("%d{sign}%m{sign}%Y");
            prop_assert_eq!(day_first(&borrowed(&texts)), proven.then_some(format));
            for (text, (d, m, y)) in texts.iter().zip(days) {
                prop_assert_eq!(Day::parse(text).unwrap().iso(), format!("{y:04}-{m:02}-{d:02}"));
            }
        }

        #[test]
        fn month_first_is_never_read_as_day_first(
            days in prop::collection::vec((1u32..=28, 1u32..=12), 1..20)
        ) {
            let texts: Vec<String> = days.iter().map(|(d, m)| format!("{m}/{d}/2024")).collect();
            let impossible = days.iter().any(|(day, _)| *day > 12);
            prop_assert!(!impossible || day_first(&borrowed(&texts)).is_none());
        }
    }

    #[test]
    fn texts_that_are_no_days_are_not_dates() {
        for text in [
            "31.02.2024",
            "1.2.3",
            "1.2.24",
            "31.13.24",
            "192.168.0.1",
            "31 12 2024",
            "2024-12-31",
            "12.2024",
        ] {
            assert_eq!(day_first(&[text]), None, "{text}");
        }
        assert_eq!(day_first(&["31.12.2024", "30/12/2024"]), None);
    }

    #[test]
    fn days_in_iso_8601_and_with_points_may_stand_in_one_column() {
        assert!(has_mixed_days(&["2024-05-06", "7.5.2024", "08.05.2024"]));
        for texts in [
            &["2024-05-06", "2024-05-07"][..],
            &["06.05.2024", "07.05.2024"],
            &["2024-05-06", "13/05/2024"],
            &["2024-05-06", "07.05.24"],
            &["2024-05-06T10:00:00", "07.05.2024"],
            &["2024-05-06", "07.05.2024", "soon"],
            &[],
        ] {
            assert!(!has_mixed_days(texts), "{texts:?}");
        }
    }

    #[test]
    fn years_of_two_digits_need_a_day_after_the_twelfth() {
        for (texts, format) in [
            (&["31.12.24", "01.02.99"][..], Some("%d.%m.%y")),
            (&["31/12/24"], Some("%d/%m/%y")),
            (&["31-12-99", "01-02-00"], Some("%d-%m-%y")),
            (&["01.02.24", "12.11.23"], None),
            (&["31-12-24"], None),
            (&["31.12.24", "31.12.2024"], None),
        ] {
            assert_eq!(day_first(texts).as_deref(), format, "{texts:?}");
        }
        let iso = |text| Day::parse(text).unwrap().iso();
        assert_eq!(
            (iso("31.12.68"), iso("31.12.69")),
            ("2068-12-31".into(), "1969-12-31".into())
        );
    }
}
