//! Numbers as Python's `int` and `float` read them from text. Digits of other scripts than Latin are not read.

/// Whether Python strips this character and matches it with `\s`.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// `int(text)` of Python 2, in canonical digits: without `+`, leading zeros and `-0`.
pub(super) fn int(text: &str) -> Option<String> {
    let text = text.trim_matches(is_space);
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let digits = digits.trim_start_matches('0');
    Some(match (digits, text.starts_with('-')) {
        ("", _) => "0".to_owned(),
        (digits, true) => format!("-{digits}"),
        (digits, false) => digits.to_owned(),
    })
}

/// `float(text)` of Python 2, infinities and NaN included.
pub(super) fn float(text: &str) -> Option<f64> {
    let text = text.trim_matches(is_space);
    let number = text.strip_prefix(['+', '-']).unwrap_or(text);
    // Rust reads the same words and numbers, and nothing besides.
    let known = number.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '.');
    known.then(|| text.parse().ok()).flatten()
}

/// `float(text)` of Python 3, which allows an underscore between two digits.
pub(super) fn float_with_underscores(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let mut underscores = text.match_indices('_').map(|(at, _)| at);
    if !underscores.all(|at| at > 0 && digit(at - 1) && digit(at + 1)) {
        return None;
    }
    float(&text.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_python_does() {
        for (text, value) in [
            ("12", Some("12")),
            (" -007\t", Some("-7")),
            ("+0", Some("0")),
            ("-0", Some("0")),
            (
                "123456789012345678901234567890",
                Some("123456789012345678901234567890"),
            ),
            ("1_000", None),
            ("1.0", None),
            ("- 1", None),
            ("", None),
            ("+", None),
        ] {
            assert_eq!(int(text).as_deref(), value, "{text:?}");
        }
    }

    #[test]
    fn floats_are_read_as_python_does() {
        for (text, value) in [
            ("1.5", Some(1.5)),
            (" .5 ", Some(0.5)),
            ("5.", Some(5.0)),
            ("-1e3", Some(-1000.0)),
            ("Infinity", Some(f64::INFINITY)),
            ("1,5", None),
            ("1 5", None),
            ("+-1", None),
            ("e5", None),
            (".", None),
            ("0x10", None),
            ("1_0", None),
        ] {
            assert_eq!(float(text), value, "{text:?}");
        }
        assert!(float("-nan").is_some_and(f64::is_nan));
        assert_eq!(float_with_underscores("1_000.5"), Some(1000.5));
        for text in ["_1", "1_", "1__0", "1_.5"] {
            assert_eq!(float_with_underscores(text), None, "{text}");
        }
    }
}
