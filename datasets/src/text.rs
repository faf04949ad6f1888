//! Texts as units that can be compared: words of European languages, single characters of Chinese,
//! tokens of code.

/// Lower-case units of a text: words, numbers, and each Chinese, Japanese or Korean character by
/// itself. Punctuation and white space only separate; full-width letters and digits are plain ones.
pub fn units(text: &str) -> Vec<String> {
    let (mut units, mut word) = (Vec::new(), String::new());
    for c in text.chars().map(plain) {
        if is_ideograph(c) {
            flush(&mut word, &mut units);
            units.push(c.to_string());
        } else if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        } else if !(c == '.' && word.chars().all(|c| c.is_ascii_digit()) && !word.is_empty()) {
            flush(&mut word, &mut units);
        } else {
            word.push(c);
        }
    }
    flush(&mut word, &mut units);
    units
}

/// Tokens of Python: names, numbers, operators one by one; comments and white space are left out, and
/// so are quotes, which may be of either kind.
pub fn tokens(code: &str) -> Vec<String> {
    let (mut tokens, mut name) = (Vec::new(), String::new());
    for line in code.lines() {
        let mut quote = None;
        for c in line.chars() {
            if c == '#' && quote.is_none() {
                break;
            }
            match quote {
                None if c == '\'' || c == '"' => quote = Some(c),
                Some(open) if c == open => quote = None,
                _ => {}
            }
            if is_ideograph(c) {
                flush(&mut name, &mut tokens);
                tokens.push(c.to_string());
            } else if c.is_alphanumeric() || c == '_' {
                name.push(c);
            } else {
                flush(&mut name, &mut tokens);
                if !c.is_whitespace() && c != '\'' && c != '"' {
                    tokens.push(c.to_string());
                }
            }
        }
        flush(&mut name, &mut tokens);
    }
    tokens
}

fn flush(word: &mut String, units: &mut Vec<String>) {
    let trimmed = word.trim_end_matches('.');
    if !trimmed.is_empty() {
        units.push(trimmed.to_owned());
    }
    word.clear();
}

/// Full-width letters, digits and punctuation as their plain forms.
fn plain(c: char) -> char {
    match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(c as u32 - 0xfee0).unwrap_or(c),
        '\u{3000}' => ' ',
        other => other,
    }
}

/// Characters that are words by themselves.
pub fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3134f}' | '\u{3040}'..='\u{30ff}' | '\u{ac00}'..='\u{d7af}')
}

/// A 64-bit hash of some units, the same on every machine.
pub fn hash<S: AsRef<str>>(units: &[S]) -> u64 {
    let mut state = 0xcbf2_9ce4_8422_2325u64;
    for unit in units {
        for byte in unit.as_ref().bytes() {
            state = (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        state = mix(state ^ 0xff);
    }
    mix(state)
}

/// Every bit of the result depends on every bit of `x` (splitmix64).
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Hashes of all runs of `length` units, each once, sorted; of the whole where it is shorter.
pub fn shingles(units: &[String], length: usize) -> Vec<u64> {
    let mut hashes: Vec<u64> = match units.len() {
        0 => Vec::new(),
        short if short < length => vec![hash(units)],
        _ => units.windows(length.max(1)).map(hash).collect(),
    };
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_words_and_single_ideographs() {
        assert_eq!(
            units("Plot the ＭＥＡＮ of 3.5, v2.1! 画出“均值”图."),
            [
                "plot", "the", "mean", "of", "3.5", "v2", "1", "画", "出", "均", "值", "图"
            ]
        );
        assert!(units(" ,.!").is_empty());
    }

    #[test]
    fn tokens_leave_layout_quotes_and_comments_out() {
        let one = tokens("x = df['a'].mean()  # mean\nprint( x )");
        let other = tokens("x=df[\"a\"].mean()\n\n\nprint(x)");
        assert_eq!(one, other);
        assert_eq!(tokens("s = '#no' # yes").join(" "), "s = # no");
        assert_ne!(tokens("x = 1"), tokens("x = 2"));
    }

    #[test]
    fn shingles_are_a_set() {
        let words = |text: &str| units(text);
        assert_eq!(shingles(&words("a b c a b c"), 3).len(), 3);
        assert_eq!(shingles(&words("a"), 3).len(), 1);
        assert!(shingles(&[], 3).is_empty());
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
    }

    #[test]
    fn fuzz_any_text_has_units() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            assert!(units(&text).iter().all(|unit| !unit.is_empty()));
            let _ = shingles(&tokens(&text), 5);
        });
    }
}
