//! Normalizes output so that equal work gives equal text: replaces memory addresses, temporary paths and
//! measured times, and removes terminal control sequences.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// Patterns and their replacements. `$1` keeps the words around a value.
static RULES: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    [
        // Terminal control sequences, and lone escape characters, which could form a new sequence.
        (
            r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\^_])?",
            "",
        ),
        // Memory addresses: after "at", or looking like a heap or a mapping.
        (r"\b(at )0x[0-9a-fA-F]{6,16}\b", "${1}0x…"),
        (r"\b0x(?:7[ef]|5[56])[0-9a-f]{10}\b", "0x…"),
        // Temporary files.
        (r"(/tmp/tmp)[a-z0-9_]{8}\b", "${1}…"),
        (r"(/tmp/ipykernel_)\d+/\d+", "${1}…"),
        // Progress bars: elapsed, remaining and rate.
        (
            r"\[\d[\d:]*<[\d:?]+, *[^\]\n]{0,40}(?:/s|s/\w{1,10})[^\]\n]{0,60}\]",
            "[…]",
        ),
        // %time, %timeit, jieba.
        (r"(?m)^((?:CPU times|Wall time): ).*$", "${1}…"),
        (
            r"[\d.]+ \S{1,3} ± [\d.]+ \S{1,3} per loop \(.*\)",
            "… per loop",
        ),
        (r"(Loading model cost )[\d.]+", "${1}…"),
    ]
    .into_iter()
    .filter_map(|(pattern, to)| Some((Regex::new(pattern).ok()?, to)))
    .collect()
});

/// The text without the parts that differ between runs.
pub fn normalize(text: &str) -> String {
    let overwritten = overwrite(text);
    let apply = |text: Cow<'_, str>, (rule, to): &(Regex, &str)| {
        rule.replace_all(&text, *to).into_owned().into()
    };
    RULES.iter().fold(overwritten, apply).into_owned()
}

/// Removes text that a carriage return overwrites.
fn overwrite(text: &str) -> Cow<'_, str> {
    if !text.contains('\r') {
        return Cow::Borrowed(text);
    }
    let last = |line: &str| {
        let line = line.trim_end_matches('\r');
        line.rsplit('\r')
            .find(|part| !part.is_empty())
            .unwrap_or("")
            .to_owned()
    };
    Cow::Owned(text.split('\n').map(last).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_compiles() {
        assert_eq!(RULES.len(), 9);
    }

    #[test]
    fn differences_between_runs_are_replaced() {
        let cases = [
            ("<object at 0x7f3a2b1c4d50>", "<object at 0x…>"),
            ("array 0x7f3a2b1c4d50 end", "array 0x… end"),
            ("<function f at 0x1a2b3c4>", "<function f at 0x…>"),
            ("/tmp/tmpab12_x9z/file.txt", "/tmp/tmp…/file.txt"),
            ("/tmp/ipykernel_12/345.py:1: W", "/tmp/ipykernel_….py:1: W"),
            (
                "  0%|   | 0/5\r100%|██| 5/5 [00:01<00:00,  4.98it/s]\n",
                "100%|██| 5/5 […]\n",
            ),
            ("Wall time: 3.1 ms", "Wall time: …"),
            (
                "1.2 µs ± 3.4 ns per loop (mean ± std. dev. of 7 runs, 10 loops each)",
                "… per loop",
            ),
            ("\x1b[31mred\x1b[0m", "red"),
            ("a\r\nb\r\n", "a\nb\n"),
            ("\x1b\x1bAA", "A"),
        ];
        for (from, to) in cases {
            assert_eq!(normalize(from), to);
        }
    }

    #[test]
    fn data_is_unchanged() {
        for text in [
            "0xff",
            "0x7fffffff",
            "/tmp/data.csv",
            "at 12:30",
            "[1, 2/s]",
            "0xDEADBEEF",
        ] {
            assert_eq!(normalize(text), text);
        }
    }

    proptest::proptest! {
        #[test]
        fn normalizing_twice_changes_nothing(text in "[\\PC\r\n\x1b]{0,200}") {
            let once = normalize(&text);
            proptest::prop_assert_eq!(normalize(&once), once);
        }
    }
}
