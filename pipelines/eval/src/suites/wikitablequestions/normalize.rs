//! The normalization of texts in upstream's evaluator (version 1.0.2).

use std::sync::LazyLock;

use regex::Regex;
use unicode_normalization::UnicodeNormalization as _;

use super::super::python_number::is_space;

/// The patterns of the evaluator. `regex` has no lookbehind, so the first character is handled by [`cut_from`].
struct Patterns {
    /// A nonspacing mark: a diacritic after decomposition.
    mark: Regex,
    /// Citations that may be the whole text.
    only_citations: Regex,
    /// Citations at the end.
    citations: Regex,
    /// Details in parentheses at the end.
    parentheses: Regex,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    // The patterns are constants that the tests compile.
    #[allow(clippy::unwrap_used)]
    let regex = |pattern: &str| Regex::new(pattern).unwrap();
    Patterns {
        mark: regex(r"^\p{Mn}$"),
        only_citations: regex(r"^(?:\[[0-9]+\]|[•♦†‡*#+])(?:\[[^\]]*\]|[•♦†‡*#+])*$"),
        citations: regex(r"(?:\[[^\]]*\]|[•♦†‡*#+])*$"),
        parentheses: regex(r"(?: \([^)]*\))*$"),
    }
});

/// Whether citations and details in parentheses at the end are removed, as upstream does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Details {
    Removed,
    Kept,
}

/// Upstream's `normalize`; with [`Details::Kept`], all its steps but the removal of details.
pub(super) fn normalize(text: &str, details: Details) -> String {
    let mut text = plain(text);
    loop {
        let mut next = text.trim_matches(is_space);
        if details == Details::Removed {
            next = without_citations(next).trim_matches(is_space);
            next = cut_from(&PATTERNS.parentheses, next).trim_matches(is_space);
        }
        let next = without_quotes(next);
        if next == text {
            break;
        }
        text = next.to_owned();
    }
    let text = text.strip_suffix('.').unwrap_or(&text);
    let words = text.split(is_space).filter(|word| !word.is_empty());
    let text = words.collect::<Vec<_>>().join(" ");
    text.chars().flat_map(char::to_lowercase).collect()
}

/// Without diacritics, and with ASCII quotes and dashes.
fn plain(text: &str) -> String {
    let decomposed = text
        .nfkd()
        .filter(|c| c.is_ascii() || !PATTERNS.mark.is_match(c.encode_utf8(&mut [0; 4])));
    decomposed
        .map(|c| match c {
            '‘' | '’' | '´' | '`' => '\'',
            '“' | '”' => '"',
            '‐' | '‑' | '‒' | '–' | '—' | '−' => '-',
            other => other,
        })
        .collect()
}

fn without_citations(text: &str) -> &str {
    match PATTERNS.only_citations.is_match(text) {
        true => "",
        false => cut_from(&PATTERNS.citations, text),
    }
}

/// Cuts what the pattern matches at the end, but never at the first character.
fn cut_from<'a>(pattern: &Regex, text: &'a str) -> &'a str {
    let Some(first) = text.chars().next() else {
        return text;
    };
    let found = pattern.find_at(text, first.len_utf8());
    found.map_or(text, |found| &text[..found.start()])
}

fn without_quotes(text: &str) -> &str {
    let inner = text
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'));
    inner.filter(|inner| !inner.contains('"')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_normalized_as_upstream_documents() {
        for (text, normalized) in [
            ("Café", "cafe"),
            ("‘a’ – “b”", "'a' - \"b\""),
            ("Italy[1][note]†", "italy"),
            ("Italy (ITA) (host)", "italy"),
            ("(unknown)", "(unknown)"),
            ("[unknown]", "[unknown]"),
            ("[12]", ""),
            ("*", ""),
            ("\"Song\" (live)", "song"),
            ("\"a\" and \"b\"", "\"a\" and \"b\""),
            ("U.S.A.", "u.s.a"),
            (" a \n\t b ", "a b"),
            ("C++", "c"),
            ("Italy(ITA)", "italy(ita)"),
            ("", ""),
            ("\"", "\""),
            ("１２", "12"),
        ] {
            assert_eq!(normalize(text, Details::Removed), normalized, "{text:?}");
        }
        assert_eq!(normalize("Italy (ITA)[1]", Details::Kept), "italy (ita)[1]");
    }

    #[test]
    fn fuzz_normalize() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = normalize(&String::from_utf8_lossy(bytes), Details::Removed);
        });
    }
}
