//! JSON text that has not been parsed.

/// An upper bound of the number of values in a JSON text, computed without parsing: counts commas and opening
/// brackets outside of strings.
pub fn count_values(text: &[u8]) -> usize {
    let (mut count, mut quoted, mut escaped) = (1, false, false);
    for byte in text {
        match (quoted, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => quoted = !quoted,
            (false, b',' | b'[' | b'{') => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_brackets_in_strings_are_not_counted() {
        assert_eq!(count_values(br#"{"a": "1,2,[{\",", "b": [1, 2]}"#), 5);
        assert_eq!(count_values(b""), 1);
    }
}
