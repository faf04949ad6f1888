//! Checks whether the answer is consistent with the observations.
//!
//! Numbers and file paths in the answer must occur in the query or in an observation. Code does not count: a
//! number typed into a cell is not an observation.
//!
//! A **number** with `d` decimals is supported by an observed number `w` if it equals `w` rounded to `d`
//! decimals or, for `d ≥ 1`, truncated to `d` decimals. Thousands separators and exponents are parsed. A
//! positive number also matches `-w` ("a drop of 5.3"). A percentage also matches the fraction, and a scale
//! word (`thousand`, `million`, `billion`, `k`, `万`, `亿`) the full number. Ignored are integers below 10 and
//! `100%` (figures of speech), markers of numbered lists, and digits inside identifiers (`Q3`, `x10`) and
//! file paths.
//!
//! A **path** is quoted text with a known extension, or anything below `output/` or `data/`. It must be a
//! file of the task, an output, a folder of one of these, or occur in the query or an observation.

use std::sync::LazyLock;

use regex::Regex;

/// Paths and numbers in the answer that neither `seen` nor `paths` supports: first the paths, then the
/// numbers, in the order of the answer. `paths` are the files of the task and its outputs, relative to the
/// workspace (`output/a.csv`).
pub fn unsupported(answer: &str, seen: &[&str], paths: &[String]) -> Vec<String> {
    let (rest, stated_paths) = split_paths(answer, paths);
    let known = SeenNumbers::of(seen);
    let mut found: Vec<String> = stated_paths
        .into_iter()
        .filter(|path| !path_is_known(path, seen, paths))
        .collect();
    let numbers = StatedNumber::all(&rest).into_iter();
    found.extend(numbers.filter(|n| !known.supports(n)).map(|n| n.text));
    found.dedup();
    found
}

// --- paths -------------------------------------------------------------------------------------

const QUOTES: &str = "'\"`“”‘’「」";

static PATH: LazyLock<Regex> = LazyLock::new(|| {
    let extensions = "csv|tsv|xlsx?|jsonl?|parquet|sqlite3?|db|txt|md|html?|pdf|docx?|ipynb|png|jpe?g|\
                      gif|webp|bmp|svg|wav|mp3|flac|ogg|mp4|py|pkl|pickle|joblib|zip|xml|ya?ml|pptx?";
    let pattern = format!(
        r#"(?x)
        [{QUOTES}] (?P<quoted> [^{QUOTES}\n]{{1,200}} \. (?i:{extensions}) ) [{QUOTES}]
        | (?: \./ | \b ) (?P<bare> (?: output | data ) / [^\s{QUOTES},;:!?()\[\]{{}}<>*|，。；：、！？（）]+ )"#
    );
    Regex::new(&pattern).unwrap_or_else(|error| unreachable!("a constant pattern: {error}"))
});

/// Splits the answer into its text without paths, and the paths.
fn split_paths(answer: &str, paths: &[String]) -> (String, Vec<String>) {
    // Remove known paths and names first, because they may contain spaces and digits.
    let mut rest = answer.to_owned();
    let mut names: Vec<&str> = paths.iter().map(String::as_str).collect();
    names.extend(paths.iter().map(|path| file_name(path)));
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    for name in names.into_iter().filter(|name| name.contains('.')) {
        rest = remove_name(&rest, name);
    }
    let group = |c: &regex::Captures<'_>| {
        let text = c.name("quoted").or(c.name("bare"));
        text.map_or_else(String::new, |m| normalize(m.as_str()).to_owned())
    };
    let stated = PATH.captures_iter(&rest).map(|c| group(&c));
    let stated = stated.filter(|path| !path.contains("://")).collect();
    let rest = PATH.replace_all(&rest, " ").into_owned();
    (rest, stated)
}

/// Removes a name from the text, except where it is the end of a longer name.
fn remove_name(text: &str, name: &str) -> String {
    let mut rest = String::with_capacity(text.len());
    let mut from = 0;
    for (at, _) in text.match_indices(name) {
        let before = text[..at].chars().next_back();
        let joined = before.is_some_and(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        if joined || before == Some('/') && !name.contains('/') {
            continue;
        }
        rest.push_str(&text[from..at]);
        rest.push(' ');
        from = at + name.len();
    }
    rest + &text[from..]
}

fn normalize(path: &str) -> &str {
    let path = path.trim();
    path.strip_prefix("./")
        .unwrap_or(path)
        .trim_end_matches(['.', '/'])
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn path_is_known(path: &str, seen: &[&str], paths: &[String]) -> bool {
    let is_folder_of = |known: &String| {
        known
            .strip_prefix(path)
            .is_some_and(|rest| rest.starts_with('/'))
    };
    paths
        .iter()
        .any(|known| known == path || is_folder_of(known))
        || seen.iter().any(|text| text.contains(path))
}

// --- numbers -----------------------------------------------------------------------------------

static NUMBER: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"(?x)
        (?P<whole> \d{1,3} (?: ,\d{3} )+ | \d+ )?
        (?: \. (?P<decimals> \d+ ) )?
        (?: [eE] (?P<exponent> [-+]? \d{1,3} ) \b )?";
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("a constant pattern: {error}"))
});

/// Maximum characters of a number; longer digit strings are ignored.
const MAX_NUMBER: usize = 400;

/// A number as it is written in a text.
#[derive(Clone, Debug, PartialEq)]
struct StatedNumber {
    text: String,
    value: f64,
    /// Value of the last digit: 0.01 for `1.25`.
    unit: f64,
    negative: bool,
    decimals: usize,
    percent: bool,
    /// Factor of a scale word that follows, such as `million`.
    scale: Option<f64>,
}

impl StatedNumber {
    /// The numbers of an answer that must be supported.
    fn all(text: &str) -> Vec<Self> {
        let numbers = scan(text).into_iter();
        let stated = numbers.filter(|(at, number)| {
            !in_identifier(text, *at)
                && !is_list_marker(text, *at, number)
                && !number.is_figure_of_speech()
        });
        stated.map(|(_, number)| number).collect()
    }

    /// Small counts and `100%` are figures of speech.
    fn is_figure_of_speech(&self) -> bool {
        let whole = self.decimals == 0 && self.unit == 1.0 && self.scale.is_none();
        whole && (self.value < 10.0 && !self.percent || self.percent && self.value == 100.0)
    }
}

/// All numbers of a text, with the byte offset of their digits.
fn scan(text: &str) -> Vec<(usize, StatedNumber)> {
    let mut found = Vec::new();
    for captures in NUMBER.captures_iter(text) {
        let Some(all) = captures.get(0) else { continue };
        let part = |name| captures.name(name).map_or("", |m| m.as_str());
        let (whole, decimals) = (part("whole"), part("decimals"));
        if whole.is_empty() && decimals.is_empty() || all.len() > MAX_NUMBER {
            continue;
        }
        let exponent: i32 = part("exponent").parse().unwrap_or(0);
        let plain = all.as_str().replace(',', "");
        let value = plain.parse().unwrap_or(f64::INFINITY);
        if !value.is_finite() {
            continue;
        }
        let after = &text[all.end()..];
        let number = StatedNumber {
            text: all.as_str().to_owned(),
            value,
            unit: 10f64.powi(exponent.saturating_sub(decimals.len() as i32)),
            negative: has_minus(&text[..all.start()]),
            decimals: decimals.len(),
            percent: is_percent(after),
            scale: scale(after),
        };
        found.push((all.start(), number));
    }
    found
}

/// Whether the text ends with a minus sign that is neither a hyphen nor a dash between numbers.
fn has_minus(before: &str) -> bool {
    let mut back = before.chars().rev();
    matches!(back.next(), Some('-' | '−')) && !back.next().is_some_and(char::is_alphanumeric)
}

fn is_percent(after: &str) -> bool {
    let after = after.trim_start_matches([' ', '\\']);
    after.starts_with(['%', '％']) || after.starts_with("percent") || after.starts_with("per cent")
}

fn scale(after: &str) -> Option<f64> {
    const WORDS: [(&str, f64); 9] = [
        ("thousand", 1e3),
        ("million", 1e6),
        ("billion", 1e9),
        ("k", 1e3),
        ("K", 1e3),
        ("M", 1e6),
        ("B", 1e9),
        ("万", 1e4),
        ("亿", 1e8),
    ];
    let after = after.strip_prefix(' ').unwrap_or(after);
    WORDS.iter().find_map(|(word, factor)| {
        let rest = after.strip_prefix(word)?;
        let ends = !word.is_ascii() || !rest.starts_with(|c: char| c.is_ascii_alphanumeric());
        ends.then_some(*factor)
    })
}

/// Whether the digits at byte `at` belong to a name (`Q3`) or to a dotted version (`1.2.3`).
fn in_identifier(text: &str, at: usize) -> bool {
    let mut back = text[..at].chars().rev();
    match back.next() {
        Some(c) if c.is_ascii_alphabetic() || c == '_' => true,
        Some('.') => back.next().is_some_and(|c| c.is_ascii_digit()),
        Some(c) => c.is_ascii_digit(),
        None => false,
    }
}

/// Whether the number is a list marker: `12. ` or `12) ` at the start of a line.
fn is_list_marker(text: &str, at: usize, number: &StatedNumber) -> bool {
    let line = text[..at].rsplit('\n').next().unwrap_or("");
    let after = &text[at + number.text.len()..];
    let mut after = after.chars();
    number.decimals == 0
        && line
            .chars()
            .all(|c| matches!(c, ' ' | '\t' | '#' | '*' | '>' | '('))
        && matches!(after.next(), Some('.' | ')' | '、'))
        && after.next().is_none_or(char::is_whitespace)
}

/// The numbers in the query and the observations.
struct SeenNumbers {
    /// Absolute values, sorted.
    all: Vec<f64>,
    /// Absolute values of the negative ones, sorted.
    negative: Vec<f64>,
}

impl SeenNumbers {
    fn of(texts: &[&str]) -> Self {
        let (mut all, mut negative) = (Vec::new(), Vec::new());
        for (_, number) in texts.iter().flat_map(|text| scan(text)) {
            let mut values = vec![number.value];
            values.extend(number.scale.map(|scale| number.value * scale));
            if number.percent {
                values.push(number.value / 100.0);
            }
            // `1,234` may also be two numbers of a list.
            if number.text.contains(',') {
                values.extend(number.text.split(',').filter_map(|p| p.parse::<f64>().ok()));
            }
            if number.negative {
                negative.extend(&values);
            }
            all.extend(values);
        }
        all.sort_by(f64::total_cmp);
        negative.sort_by(f64::total_cmp);
        Self { all, negative }
    }

    fn supports(&self, number: &StatedNumber) -> bool {
        let values = if number.negative {
            &self.negative
        } else {
            &self.all
        };
        let share = number.percent.then_some(0.01);
        let factors = [Some(1.0), share, number.scale];
        let as_one = factors.into_iter().flatten();
        if as_one
            .into_iter()
            .any(|factor| matches(values, number, factor))
        {
            return true;
        }
        // `1,234` in the answer may also be two numbers.
        let mut parts = number.text.split(',').map(|part| part.parse::<f64>());
        number.text.contains(',')
            && parts.all(|part| part.is_ok_and(|part| contains_value(&self.all, part, part)))
    }
}

fn matches(values: &[f64], number: &StatedNumber, factor: f64) -> bool {
    let (value, unit) = (number.value * factor, number.unit * factor);
    let rounded = contains_value(values, value - unit / 2.0, value + unit / 2.0);
    // Truncated instead of rounded: any value up to the next number with as many decimals.
    rounded || (number.decimals > 0 && contains_value(values, value, value + unit))
}

/// Whether a value lies in the range, with a tolerance for floating-point error.
fn contains_value(sorted: &[f64], low: f64, high: f64) -> bool {
    let slack = 1e-9 * high.abs().max(low.abs());
    let first = sorted.partition_point(|value| *value < low - slack);
    sorted
        .get(first)
        .is_some_and(|value| *value <= high + slack)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(answer: &str, seen: &str) -> Vec<String> {
        let paths = [
            "data/cars 2.csv",
            "output/result.csv",
            "output/plots/a1.png",
        ];
        unsupported(answer, &[seen], &paths.map(String::from))
    }

    #[test]
    fn true_statements_are_supported() {
        let cases = [
            ("The mean is 12.35.", "12.3456789"),
            ("The mean is 12.34 (cut).", "12.3456789"),
            ("There are 1,234 rows.", "(1234, 5)"),
            ("There are 1234 rows.", "shape: 1,234 x 5"),
            ("Share: 45.7%", "0.45678"),
            ("A share of 0.457", "45.7%"),
            ("A drop of 5.3 points", "change: -5.3"),
            ("Mean: -5.3", "change: -5.31"),
            ("About 1.2 million people", "1234567"),
            ("约 12.3 万人", "123456"),
            ("共有 1234 行。", "1234"),
            ("p = 1.5e-05", "1.4999e-05"),
            ("From 2019-01-31 to 2020-12-31", "2019-01-31 2020-12-31"),
            ("Version 1.22.333 is used", "numpy 1.22.333"),
            ("1. Loaded 15 rows\n2. Saved\n12. Done", "15 rows"),
            ("I did it in 3 steps, 100% done", ""),
            (
                "Saved in ./output/result.csv and `./output/plots/a1.png`.",
                "",
            ),
            ("Read ./data/cars 2.csv; plots are in output/plots/", ""),
            ("Q3 and x10 and utf_16 are names", ""),
            ("Values: 1,234,567", "1\n234\n567"),
            ("Range 10-20", "10 20"),
            ("Wrote ./output/my_result.csv", "output/my_result.csv"),
            ("See 'https://host/a/b.html'", ""),
        ];
        for (answer, seen) in cases {
            assert_eq!(check(answer, seen), Vec::<String>::new(), "{answer}");
        }
    }

    #[test]
    fn false_statements_are_reported() {
        let cases = [
            ("The mean is 12.36.", "12.3456789", "12.36"),
            ("There are 1,235 rows.", "1234", "1,235"),
            ("Mean: -5.3", "5.3", "5.3"),
            ("Share: 46%", "0.451", "46"),
            ("Rounded: 13", "12.4", "13"),
            ("Cut: 12", "12.7", "12"),
            ("Saved to ./output/other.csv.", "", "output/other.csv"),
            ("已保存到 `./output/图.png`。", "", "output/图.png"),
            ("See 'report.pdf'.", "", "report.pdf"),
        ];
        for (answer, seen, alarm) in cases {
            assert_eq!(check(answer, seen), [alarm], "{answer}");
        }
    }

    /// Formats a number in one of several common styles.
    fn notation(value: f64, decimals: usize, style: u8) -> String {
        let plain = format!("{value:.decimals$}");
        match style {
            0 => plain,
            1 => {
                let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
                let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
                let mut grouped = String::new();
                for (i, c) in digits.chars().enumerate() {
                    if i > 0 && (digits.len() - i) % 3 == 0 {
                        grouped.push(',');
                    }
                    grouped.push(c);
                }
                format!("{sign}{grouped}{rest}")
            }
            2 => format!("{value:.decimals$e}"),
            3 => format!("{:.decimals$}%", value * 100.0),
            _ => format!("{:.decimals$} million", value / 1e6),
        }
    }

    proptest! {
        #[test]
        fn a_formatted_observation_is_supported(
            value in prop_oneof![-1e7..1e7f64, -1.0..1.0f64, (-5000i32..5000).prop_map(f64::from)],
            decimals in 0usize..8,
            style in 0u8..5,
            before in prop_oneof![Just("Mean: "), Just("("), Just("结果为"), Just("= "), Just("**")],
            after in prop_oneof![Just("."), Just(", so"), Just(")"), Just("。"), Just("**"), Just(" km")],
        ) {
            let answer = format!("{before}{}{after}", notation(value, decimals, style));
            let seen = format!("value {value}\n");
            prop_assert_eq!(unsupported(&answer, &[&seen], &[]), Vec::<String>::new(), "{}", answer);
        }

        #[test]
        fn a_different_number_is_reported(value in 10.0..1e7f64, off in 0.02..1e3f64) {
            let answer = format!("Mean: {:.2}", value + off);
            let seen = format!("value {value:.6}");
            prop_assert_eq!(unsupported(&answer, &[&seen], &[]).len(), 1);
        }

        #[test]
        fn any_text_is_accepted(answer in "\\PC*", seen in "\\PC*") {
            let found = unsupported(&answer, &[&seen], &[]);
            prop_assert!(found.len() <= answer.len());
            let repeated = format!("{answer}\n");
            prop_assert!(unsupported(&repeated, &[&repeated], &[]).is_empty());
        }
    }

    #[test]
    fn fuzz_hostile_text_is_accepted() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            unsupported(&text, &[&text], &[]);
        });
    }
}
