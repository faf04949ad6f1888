//! Removes differences between two runs of the same code that do not matter, such as addresses and times.
//!
//! [`text`] replaces addresses, temporary and installation paths, random identifiers and measured times in a
//! text. [`compare`] compares two normalized texts, and also accepts the current time where the recorded text has
//! a time of the same form. [`content_digest`] is the digest of a file without the timestamps and random names
//! that its format contains. `docs/proof.md` lists the rules.

mod file;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};

pub use file::content_digest;

/// The rules of [`text`]: pattern and replacement.
const RULES: [(&str, &str); 10] = [
    // Addresses.
    (r"\bat 0x[0-9a-fA-F]{6,16}\b", "at 0x…"),
    (r"\b0x[0-9a-fA-F]{9,16}\b", "0x…"),
    // Temporary paths and process ids.
    (r"(/tmp/tmp)[a-z0-9_]{6,12}\b", "${1}…"),
    (r"(\bpid[ =:]{1,2}|/proc/)\d{1,9}\b", "${1}…"),
    // Installation paths of Python and its packages.
    (
        r"(?:/[\w.+-]+)+/(?:site|dist)-packages/",
        "…/site-packages/",
    ),
    (r"(?:/[\w.+-]+)+/(python3\.\d+/)", "…/$1"),
    // Timestamps with microseconds, and measured durations.
    (
        r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\.\d{6}(?:\+\d\d:\d\d|Z)?",
        "time…",
    ),
    (
        r"(?i)((?:\b(?:elapsed|took|runtime|wall time)\b|耗时|用时)[^\n\d]{0,16})\d+(?:\.\d+)?(?:e-\d+)?(\s?(?:ns|µs|us|ms|s|secs?|seconds?)\b|\s?(?:毫秒|微秒|秒))",
        "${1}…${2}",
    ),
    (r"(\bin )\d+(?:\.\d+)?(\s?(?:ns|µs|us|ms)\b)", "${1}…${2}"),
    (
        r"(?i)\b(elapsed|took)([^\n\d]{0,16})\d+\.\d{4,}",
        "${1}${2}…",
    ),
];

static COMPILED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let rules = RULES.iter();
    rules
        .filter_map(|(rule, to)| Some((Regex::new(rule).ok()?, *to)))
        .collect()
});

/// Random UUIDs. They are replaced by numbers in order of first appearance.
static IDENTIFIERS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b").ok()
});

/// A date, a time, or both, in common formats.
static TIMES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\b\d{4}[-/]\d\d?[-/]\d\d?(?:[T ]\d\d?:\d\d(?::\d\d(?:\.\d+)?)?)?|\d{4}年\d\d?月\d\d?日(?: ?\d\d?:\d\d(?::\d\d)?)?|\b\d\d:\d\d:\d\d\b",
    )
    .ok()
});

/// The text without what differs between two runs of the same code.
pub fn text(text: &str) -> String {
    let apply = |text: Cow<'_, str>, (rule, to): &(Regex, &str)| {
        Cow::Owned(rule.replace_all(&text, *to).into_owned())
    };
    let plain = COMPILED.iter().fold(Cow::Borrowed(text), apply);
    match &*IDENTIFIERS {
        Some(rule) => number_matches(&plain, rule),
        None => plain.into_owned(),
    }
}

/// Replace every match of `rule` by `id…N`, where N is the order of first appearance.
fn number_matches(text: &str, rule: &Regex) -> String {
    let mut seen = HashMap::new();
    let name = |captures: &Captures<'_>| {
        let next = seen.len();
        let number = *seen.entry(captures[0].to_owned()).or_insert(next);
        format!("id…{number}")
    };
    rule.replace_all(text, name).into_owned()
}

/// Result of comparing two texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// The texts are identical.
    Identical,
    /// The texts are identical after normalization by [`text`].
    Normalized,
    /// The texts are identical after normalization, except that the second shows its own current time where the
    /// first shows another time.
    ClockDiffers,
    /// The texts differ.
    Different(Difference),
}

/// The first line in which two texts differ.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Difference {
    /// Line number, from 1.
    pub line: usize,
    /// The line in the first text, at most 200 characters.
    pub was: String,
    /// The line in the second text, at most 200 characters.
    pub is: String,
}

/// Compare a recorded text (`was`) with the text of a new run (`is`). `today` is the date of the new run, such as
/// `2026-11-22`; times of that date count as the current time.
pub fn compare(was: &str, is: &str, today: &str) -> Comparison {
    if was == is {
        return Comparison::Identical;
    }
    let (was, is) = (text(was), text(is));
    if was == is {
        return Comparison::Normalized;
    }
    match only_clock_differs(&was, &is, today) {
        true => Comparison::ClockDiffers,
        false => Comparison::Different(difference(&was, &is)),
    }
}

/// Whether the texts are equal except for times, and every differing time in the second text is either of today
/// or a time of day without a date.
fn only_clock_differs(was: &str, is: &str, today: &str) -> bool {
    let Some(rule) = &*TIMES else { return false };
    let (first, second): (Vec<_>, Vec<_>) =
        (rule.find_iter(was).collect(), rule.find_iter(is).collect());
    if first.len() != second.len() || first.is_empty() {
        return false;
    }
    let rest = |text: &str| rule.replace_all(text, "\0").into_owned();
    let of_today = |time: &str| {
        let digits = |text: &str| -> Vec<u64> {
            let parts = text.split(|c: char| !c.is_ascii_digit());
            parts.filter_map(|part| part.parse().ok()).take(3).collect()
        };
        digits(time) == digits(today)
    };
    let form = |time: &str| -> String {
        let shape = |c: char| if c.is_ascii_digit() { '0' } else { c };
        time.chars().map(shape).collect()
    };
    let fits = |(a, b): (&regex::Match<'_>, &regex::Match<'_>)| {
        let (a, b) = (a.as_str(), b.as_str());
        let of_clock = of_today(b) || (b.len() == 8 && b.contains(':'));
        a == b || (of_clock && form(a) == form(b))
    };
    rest(was) == rest(is) && first.iter().zip(&second).all(fits)
}

fn difference(was: &str, is: &str) -> Difference {
    let (mut a, mut b) = (was.split('\n'), is.split('\n'));
    let mut line = 0;
    loop {
        line += 1;
        let (was, is) = (a.next(), b.next());
        if was != is || (was.is_none() && is.is_none()) {
            let shown = |text: Option<&str>| match text {
                Some(text) => text.chars().take(200).collect(),
                None => "(nothing)".to_owned(),
            };
            return Difference {
                line,
                was: shown(was),
                is: shown(is),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TODAY: &str = "2026-11-22";

    #[test]
    fn every_rule_compiles() {
        assert_eq!(COMPILED.len(), RULES.len());
        assert!(IDENTIFIERS.is_some() && TIMES.is_some());
    }

    #[test]
    fn addresses_paths_and_durations_are_normalized() {
        let cases = [
            (
                "<A object at 0x7f3a2b1c4d50>",
                "<A object at 0x7f00000c4d50>",
            ),
            ("id 0x55d0aa11bb22", "id 0x55d0aa11bb99"),
            (
                "saved to /tmp/tmpab12_x9z/a.csv",
                "saved to /tmp/tmpzz12_x9z/a.csv",
            ),
            ("pid: 12", "pid: 3456"),
            ("in /proc/12/maps", "in /proc/7/maps"),
            (
                "/opt/env/lib/python3.11/site-packages/pandas/a.py:3: W",
                "/usr/lib/python3/dist-packages/pandas/a.py:3: W",
            ),
            (
                "/usr/lib/python3.11/ast.py",
                "/opt/py/lib/python3.11/ast.py",
            ),
            ("took 0.0123 s", "took 1.5 s"),
            ("耗时：0.5秒", "耗时：12.25秒"),
            ("done in 12.5ms", "done in 3ms"),
            (
                "now 2024-01-02 03:04:05.123456",
                "now 2026-11-22 03:04:05.654321",
            ),
            (
                "a 3f2504e0-4f89-41d3-9a0c-0305e82c3301",
                "a aaaaaaaa-4f89-41d3-9a0c-0305e82c3301",
            ),
        ];
        for (was, is) in cases {
            assert_eq!(compare(was, is, TODAY), Comparison::Normalized, "{was}");
        }
    }

    #[test]
    fn differences_in_data_are_detected() {
        let cases = [
            ("mean 3.1", "mean 3.2"),
            ("2024-01-02", "2024-01-03"),
            ("0xff", "0xfe"),
            ("count 12", "count 13"),
            ("time 12", "time 13"),
            ("a\nb", "a\nc"),
            ("a", "a\n"),
            ("/data/a.csv", "/data/b.csv"),
            ("took part 3", "took part 4"),
            ("duration: 3.5 s", "duration: 3.6 s"),
        ];
        for (was, is) in cases {
            assert!(
                matches!(compare(was, is, TODAY), Comparison::Different(_)),
                "{was}"
            );
        }
        let Comparison::Different(difference) = compare("a\nb\nc", "a\nx\nc", TODAY) else {
            panic!()
        };
        assert_eq!(
            (difference.line, &*difference.was, &*difference.is),
            (2, "b", "x")
        );
    }

    #[test]
    fn the_current_time_may_replace_the_recorded_time() {
        assert_eq!(
            compare(
                "made 2024-01-02 03:04:05, 3 rows",
                "made 2026-11-22 13:14:15, 3 rows",
                TODAY
            ),
            Comparison::ClockDiffers
        );
        assert_eq!(
            compare("2024年1月2日", "2026年11月22日", TODAY),
            Comparison::Different(difference("2024年1月2日", "2026年11月22日")),
            "the format differs"
        );
        // A changed date that is not today's is a difference.
        assert!(matches!(
            compare("2024-01-02 2024-01-05", "2024-01-02 2024-01-06", TODAY),
            Comparison::Different(_)
        ));
        // Today's date does not hide another difference.
        assert!(matches!(
            compare("2024-01-02 a", "2026-11-22 b", TODAY),
            Comparison::Different(_)
        ));
    }

    #[test]
    fn different_identifiers_get_different_numbers() {
        let (a, b) = (
            "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
            "aaaaaaaa-4f89-41d3-9a0c-0305e82c3301",
        );
        assert_eq!(text(&format!("{a} {b} {a}")), "id…0 id…1 id…0");
        assert_ne!(text(&format!("{a} {b}")), text(&format!("{a} {a}")));
    }

    proptest::proptest! {
        #[test]
        fn normalization_is_idempotent(sample in "[a-f0-9x:/ .s\n-]{0,120}") {
            let once = text(&sample);
            proptest::prop_assert_eq!(text(&once), once);
        }

        #[test]
        fn a_text_is_identical_to_itself_and_not_to_a_longer_one(sample in "\\PC{0,80}") {
            proptest::prop_assert_eq!(compare(&sample, &sample, TODAY), Comparison::Identical);
            let longer = format!("{sample}x");
            proptest::prop_assert!(compare(&sample, &longer, TODAY) != Comparison::Identical);
        }
    }

    #[test]
    fn fuzz_comparison_of_any_two_texts() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let both = String::from_utf8_lossy(bytes);
            let middle = (both.len() / 2..=both.len()).find(|at| both.is_char_boundary(*at));
            let (a, b) = both.split_at(middle.unwrap_or(0));
            let _ = compare(a, b, TODAY);
        });
    }
}
