//! Splits texts into units for comparison: words, single CJK characters, and tokens of code. Also hashes and
//! shingles of such units.

use std::borrow::Cow;

use icu_normalizer::ComposingNormalizerBorrowed;

/// A text without what cannot be seen: invisible characters are removed, and characters that look alike, such as
/// decomposed and full-width letters, are made equal (NFKC).
pub fn normalized(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return text.into();
    }
    let nfkc = ComposingNormalizerBorrowed::new_nfkc();
    match text.contains(is_invisible) {
        true => nfkc
            .normalize(&text.replace(is_invisible, ""))
            .into_owned()
            .into(),
        false => nfkc.normalize(text),
    }
}

/// Format characters and variation selectors, such as the soft hyphen and the zero-width space.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180b}'..='\u{180e}' | '\u{200b}'..='\u{200f}'
        | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Call `each` for every unit of a [`normalized`] text in lower case: words, numbers, and single Chinese, Japanese or
/// Korean characters. Punctuation and white space are separators.
pub fn each_unit(text: &str, mut each: impl FnMut(&str)) {
    let mut word = String::new();
    for c in normalized(text).chars() {
        match c {
            c if c.is_ascii_alphanumeric() => word.push(c.to_ascii_lowercase()),
            // Decimal point in a number.
            '.' if !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit()) => word.push('.'),
            c if !c.is_ascii() && is_ideograph(c) => {
                flush(&mut word, &mut each);
                each(c.encode_utf8(&mut [0; 4]));
            }
            c if !c.is_ascii() && c.is_alphanumeric() => word.extend(c.to_lowercase()),
            _ => flush(&mut word, &mut each),
        }
    }
    flush(&mut word, &mut each);
}

fn flush(word: &mut String, each: &mut impl FnMut(&str)) {
    let trimmed = word.trim_end_matches('.');
    if !trimmed.is_empty() {
        each(trimmed);
    }
    word.clear();
}

/// Call `each` for every token of Python code: names, numbers and single operator characters. Comments, white space
/// and quotes are skipped.
pub fn each_token(code: &str, mut each: impl FnMut(&str)) {
    for line in code.lines() {
        let (mut quote, mut name) = (None, None);
        for (at, c) in line.char_indices() {
            let ideograph = !c.is_ascii() && is_ideograph(c);
            if !ideograph && (c.is_alphanumeric() || c == '_') {
                name.get_or_insert(at);
                continue;
            }
            if let Some(from) = name.take() {
                each(&line[from..at]);
            }
            match (c, quote) {
                ('#', None) => break,
                ('\'' | '"', None) => quote = Some(c),
                (_, Some(open)) if c == open => quote = None,
                _ => {}
            }
            if !c.is_whitespace() && c != '\'' && c != '"' {
                each(&line[at..at + c.len_utf8()]);
            }
        }
        if let Some(from) = name {
            each(&line[from..]);
        }
    }
}

/// Whether a character counts as a word of its own.
pub fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3134f}' | '\u{3040}'..='\u{30ff}' | '\u{ac00}'..='\u{d7af}')
}

/// A 64-bit hash of a unit. It is the same on every machine.
pub fn hash_of(unit: &str) -> u64 {
    let eights = unit.as_bytes().chunks(8);
    eights.fold(unit.len() as u64, |state, eight| {
        let number = eight
            .iter()
            .rev()
            .fold(0, |n, byte| n << 8 | u64::from(*byte));
        mix(state ^ number)
    })
}

/// A hash of a sequence of units, given the hashes of the units.
pub fn combine(units: &[u64]) -> u64 {
    units.iter().fold(0, |state, unit| mix(state ^ unit))
}

/// A hash of a sequence of texts.
pub fn hash<S: AsRef<str>>(units: &[S]) -> u64 {
    let hashes = units.iter().map(|unit| hash_of(unit.as_ref()));
    hashes.fold(0, |state, unit| mix(state ^ unit))
}

/// Mix the bits of `x` (splitmix64).
pub fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Hashes of all windows of `length` units, or of the whole sequence if it is shorter.
pub fn shingles(units: &[u64], length: usize) -> Vec<u64> {
    match units.len() {
        0 => Vec::new(),
        short if short < length => vec![combine(units)],
        _ => units.windows(length.max(1)).map(combine).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(text: &str) -> Vec<String> {
        let mut units = Vec::new();
        each_unit(text, |unit| units.push(unit.to_owned()));
        units
    }

    fn tokens(code: &str) -> Vec<String> {
        let mut tokens = Vec::new();
        each_token(code, |token| tokens.push(token.to_owned()));
        tokens
    }

    #[test]
    fn units_are_words_and_single_ideographs() {
        assert_eq!(
            units("Plot the ＭＥＡＮ of 3.5, v2.1! 画出“均值”图. ÉTÉ 1.2.3 4."),
            [
                "plot", "the", "mean", "of", "3.5", "v2", "1", "画", "出", "均", "值", "图", "été",
                "1.2", "3", "4"
            ]
        );
        assert!(units(" ,.!").is_empty());
    }

    #[test]
    fn what_cannot_be_seen_makes_no_difference() {
        let plain = units("Über naïve Größen: 한글 ガ fine");
        for disguised in [
            "U\u{308}ber nai\u{308}ve Gro\u{308}ßen: 한글 カ\u{3099} fine",
            "Ü\u{ad}ber na\u{200b}ïve Grö\u{2060}ßen\u{feff}: 한\u{200d}글 ガ\u{fe0f} f\u{e0020}ine",
            "Ｕ\u{308}ber naïve Größen: 한글 ｶﾞ ﬁne",
        ] {
            assert_eq!(units(disguised), plain);
        }
    }

    #[test]
    fn tokens_ignore_layout_quotes_and_comments() {
        let one = tokens("x = df['a'].mean()  # mean\nprint( x )");
        let other = tokens("x=df[\"a\"].mean()\n\n\nprint(x)");
        assert_eq!(one, other);
        assert_eq!(tokens("s = '#no' # yes").join(" "), "s = # no");
        assert_eq!(tokens("标题_1='价格'#x").join(" "), "标 题 _1 = 价 格");
        assert_ne!(tokens("x = 1"), tokens("x = 2"));
    }

    #[test]
    fn different_texts_have_different_hashes() {
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(hash(&["", "a"]), hash(&["a", ""]));
        assert_ne!(hash_of("a"), hash_of("a\0"));
        assert_eq!(
            hash(&["one", "two"]),
            combine(&[hash_of("one"), hash_of("two")])
        );
        let units: Vec<u64> = (0..6).collect();
        assert_eq!(shingles(&units, 3).len(), 4);
        assert_eq!(shingles(&units[..2], 3), [combine(&units[..2])]);
        assert!(shingles(&[], 3).is_empty());
    }

    #[test]
    fn fuzz_units_and_tokens() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            assert!(units(&text).iter().all(|unit| !unit.is_empty()));
            assert!(tokens(&text).iter().all(|token| !token.is_empty()));
        });
    }
}
