//! Text for display: without invisible characters and changes of writing direction.

/// Makes invisible characters visible: control characters become control pictures; bidirectional marks and
/// other invisible characters become their code points. Line breaks and tabs stay.
pub fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(c),
            '\r' => out.push('␍'),
            '\u{0}'..='\u{1f}' => out.push(char::from_u32(0x2400 + c as u32).unwrap_or('\u{fffd}')),
            '\u{7f}' => out.push('␡'),
            '\u{80}'..='\u{9f}'
            | '\u{ad}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{fffe}'..='\u{ffff}'
            | '\u{e0000}'..='\u{e007f}' => out.push_str(&format!("⟨U+{:04X}⟩", c as u32)),
            _ => out.push(c),
        }
    }
    out
}

/// Truncates text to `most` characters and marks the cut.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}… [cut]", &text[..at]),
        None => text.to_owned(),
    }
}

/// Visible text on a single line.
pub fn line(text: &str) -> String {
    visible(text).replace(['\n', '\t'], " ")
}

/// Escapes visible text for XML and HTML.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

/// Escapes text for a cell of a Markdown table.
pub fn markdown(text: &str) -> String {
    let mut out = String::new();
    for c in line(text).chars() {
        if "\\`*_{}[]()<>#+!|&~:".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// A rate in percent with one decimal.
pub fn percent(rate: f64) -> String {
    format!("{:.1}", rate * 100.0)
}

/// A size in B, KiB, MiB or GiB.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// A count with thousands separators: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// An amount of millionths of a dollar, to the cent, or to two significant digits if it is below 10 cents:
/// `$1,234.50`, `$0.0057`, `$0`.
pub fn dollars(micro_usd: u64) -> String {
    if micro_usd == 0 {
        return "$0".to_owned();
    }
    if micro_usd >= 99_500 {
        let cents = micro_usd.saturating_add(5_000) / 10_000;
        return format!("${}.{:02}", count(cents / 100), cents % 100);
    }
    let digits = micro_usd.to_string().len();
    format!("${:.*}", (8 - digits).min(6), micro_usd as f64 / 1e6)
}

/// A safe file name for any text: its safe characters, plus a digest if others were removed.
pub fn slug(text: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let kept: String = text.chars().filter(|c| keep(*c)).take(40).collect();
    if kept == text && !kept.is_empty() {
        return kept;
    }
    let digest = crate::id::Digest::of_bytes(text.as_bytes());
    format!("{kept}-{}", &digest.as_str()[..8])
}

/// `text` as one word of a shell.
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_@%+=:,./-".contains(c);
    match !text.is_empty() && text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_replaced() {
        let hostile = "a\u{1b}[31m\u{0}\u{202e}txt\u{200b}\r\n\tz\u{7f}";
        assert_eq!(visible(hostile), "a␛[31m␀⟨U+202E⟩txt⟨U+200B⟩␍\n\tz␡");
        assert_eq!(escape("<b a='1'>&\""), "&lt;b a=&#39;1&#39;&gt;&amp;&quot;");
        assert_eq!(markdown("a|b\n[x](y)"), "a\\|b \\[x\\]\\(y\\)");
    }

    #[test]
    fn amounts_keep_their_significant_digits() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(count),
            ["0", "999", "1,000", "1,234,567"]
        );
        let amounts = [
            (0, "$0"),
            (7, "$0.000007"),
            (5_700, "$0.0057"),
            (9_960, "$0.0100"),
            (12_345, "$0.012"),
            (99_499, "$0.099"),
            (99_500, "$0.10"),
            (4_760_000, "$4.76"),
            (1_234_504_999, "$1,234.50"),
            (u64::MAX, "$18,446,744,073,709.55"),
        ];
        for (amount, text) in amounts {
            assert_eq!(dollars(amount), text);
        }
    }

    #[test]
    fn slugs_are_safe_and_distinct() {
        assert_eq!(slug("chart-1"), "chart-1");
        for hostile in [
            "../../etc/passwd",
            "a/b",
            "",
            "数据",
            "\u{0}",
            &"x".repeat(100),
        ] {
            let name = slug(hostile);
            assert!(
                !name.contains(['/', '.', '\u{0}']) && name.len() < 60,
                "{name}"
            );
        }
        assert_ne!(slug("a/b"), slug("a:b"));
    }

    #[test]
    fn fuzz_text_stays_escaped() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let shown = escape(&text);
            assert!(!shown.contains(['<', '>', '"', '\'', '\u{1b}', '\u{202e}']));
            assert!(!markdown(&text).contains('\n'));
            assert!(!slug(&text).contains('/'));
        });
    }

    #[test]
    fn a_word_of_a_shell_is_quoted_where_it_must_be() {
        assert_eq!(shell_word("data/über-1.csv"), "data/über-1.csv");
        assert_eq!(shell_word("it's a b"), r"'it'\''s a b'");
        assert_eq!(shell_word(""), "''");
    }
}
