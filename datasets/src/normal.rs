//! What differs between two runs of equal work, and is no difference: the declared normalisation of
//! proofs.
//!
//! [`text`] takes addresses, temporary and installed paths, identifiers and measured times out of a
//! text; [`same`] compares two texts so, and lets the clock of the second run stand where the first
//! has a time of the same form; [`content`] is the digest of a file without the times and random names
//! that its format carries. `docs/proof.md` lists the rules.

mod file;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};

pub use file::content;

/// Rules of [`text`]: what is looked for, and what stands in its place.
const RULES: [(&str, &str); 10] = [
    // Addresses.
    (r"\bat 0x[0-9a-fA-F]{6,16}\b", "at 0x…"),
    (r"\b0x[0-9a-fA-F]{9,16}\b", "0x…"),
    // Temporary paths, processes.
    (r"(/tmp/tmp)[a-z0-9_]{6,12}\b", "${1}…"),
    (r"(\bpid[ =:]{1,2}|/proc/)\d{1,9}\b", "${1}…"),
    // Where Python and its packages are installed.
    (
        r"(?:/[\w.+-]+)+/(?:site|dist)-packages/",
        "…/site-packages/",
    ),
    (r"(?:/[\w.+-]+)+/(python3\.\d+/)", "…/$1"),
    // Times that only a clock gives: to the microsecond, and measured durations.
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

/// Random identifiers, which are numbered by their first appearance.
static IDENTIFIERS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b").ok()
});

/// A date, a time, or both, in the usual forms.
static TIMES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"\b\d{4}[-/]\d\d?[-/]\d\d?(?:[T ]\d\d?:\d\d(?::\d\d(?:\.\d+)?)?)?|\d{4}年\d\d?月\d\d?日(?: ?\d\d?:\d\d(?::\d\d)?)?|\b\d\d:\d\d:\d\d\b",
    )
    .ok()
});

/// The text as it would be in another run of the same work.
pub fn text(text: &str) -> String {
    let apply = |text: Cow<'_, str>, (rule, to): &(Regex, &str)| {
        Cow::Owned(rule.replace_all(&text, *to).into_owned())
    };
    let plain = COMPILED.iter().fold(Cow::Borrowed(text), apply);
    match &*IDENTIFIERS {
        Some(rule) => numbered(&plain, rule),
        None => plain.into_owned(),
    }
}

/// Every match of `rule` as `id…N`, N by first appearance.
fn numbered(text: &str, rule: &Regex) -> String {
    let mut seen = HashMap::new();
    let name = |found: &Captures<'_>| {
        let next = seen.len();
        let number = *seen.entry(found[0].to_owned()).or_insert(next);
        format!("id…{number}")
    };
    rule.replace_all(text, name).into_owned()
}

/// How two texts compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Same {
    /// Byte by byte.
    Exactly,
    /// Once [`text`] has taken out what differs between runs.
    Normalised,
    /// As `Normalised`, and the second has its own clock's time where the first has another.
    Clock,
    /// Not at all.
    No(Difference),
}

/// Where two texts part.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Difference {
    /// Line, from 1.
    pub line: usize,
    /// That line of the first, at most 200 characters.
    pub was: String,
    /// That line of the second.
    pub is: String,
}

/// Compare a recorded text with that of a run of today (`2026-11-22`), which both the record's and the
/// second run's clock may have printed.
pub fn same(was: &str, is: &str, today: &str) -> Same {
    if was == is {
        return Same::Exactly;
    }
    let (was, is) = (text(was), text(is));
    if was == is {
        return Same::Normalised;
    }
    match clocked(&was, &is, today) {
        true => Same::Clock,
        false => Same::No(difference(&was, &is)),
    }
}

/// Whether the two are equal but for times, where every time of the second that differs is today's, or
/// a time of day on a line without a date.
fn clocked(was: &str, is: &str, today: &str) -> bool {
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
    fn addresses_paths_and_times_are_no_difference() {
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
            assert_eq!(same(was, is, TODAY), Same::Normalised, "{was}");
        }
    }

    #[test]
    fn data_is_a_difference() {
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
            assert!(matches!(same(was, is, TODAY), Same::No(_)), "{was}");
        }
        let Same::No(difference) = same("a\nb\nc", "a\nx\nc", TODAY) else {
            panic!()
        };
        assert_eq!(
            (difference.line, &*difference.was, &*difference.is),
            (2, "b", "x")
        );
    }

    #[test]
    fn the_clock_of_the_second_run_may_stand_for_that_of_the_first() {
        assert_eq!(
            same(
                "made 2024-01-02 03:04:05, 3 rows",
                "made 2026-11-22 13:14:15, 3 rows",
                TODAY
            ),
            Same::Clock
        );
        assert_eq!(
            same("2024年1月2日", "2026年11月22日", TODAY),
            Same::No(difference("2024年1月2日", "2026年11月22日")),
            "another form"
        );
        // A date of the data that changes, beside one that does not.
        assert!(matches!(
            same("2024-01-02 2024-01-05", "2024-01-02 2024-01-06", TODAY),
            Same::No(_)
        ));
        // Today's date does not hide another difference.
        assert!(matches!(
            same("2024-01-02 a", "2026-11-22 b", TODAY),
            Same::No(_)
        ));
    }

    #[test]
    fn identifiers_are_told_apart() {
        let (a, b) = (
            "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
            "aaaaaaaa-4f89-41d3-9a0c-0305e82c3301",
        );
        assert_eq!(text(&format!("{a} {b} {a}")), "id…0 id…1 id…0");
        assert_ne!(text(&format!("{a} {b}")), text(&format!("{a} {a}")));
    }

    proptest::proptest! {
        #[test]
        fn normalising_twice_changes_nothing(sample in "[a-f0-9x:/ .s\n-]{0,120}") {
            let once = text(&sample);
            proptest::prop_assert_eq!(text(&once), once);
        }

        #[test]
        fn a_text_is_the_same_as_itself_and_not_as_a_longer_one(sample in "\\PC{0,80}") {
            proptest::prop_assert_eq!(same(&sample, &sample, TODAY), Same::Exactly);
            let longer = format!("{sample}x");
            proptest::prop_assert!(same(&sample, &longer, TODAY) != Same::Exactly);
        }
    }

    #[test]
    fn fuzz_any_two_texts_are_compared() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let both = String::from_utf8_lossy(bytes);
            let middle = (both.len() / 2..=both.len()).find(|at| both.is_char_boundary(*at));
            let (a, b) = both.split_at(middle.unwrap_or(0));
            let _ = same(a, b, TODAY);
        });
    }
}
