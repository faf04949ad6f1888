//! Text as it can be shown: nothing invisible, nothing that turns the line around.

/// Replaces what is not shown by something that is: control characters by their pictures, marks
/// that change the direction of writing and other invisible ones by their numbers. Line ends and
/// tabs stay.
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

/// The first `most` characters, and a word where more were there.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}… [cut]", &text[..at]),
        None => text.to_owned(),
    }
}

/// One line of it.
pub fn line(text: &str) -> String {
    visible(text).replace(['\n', '\t'], " ")
}

/// For XML and HTML.
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

/// For a cell of a Markdown table: no markup of the text's own.
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

/// A rate in percent, one place.
pub fn percent(rate: f64) -> String {
    format!("{:.1}", rate * 100.0)
}

/// Bytes for people.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} B"),
        1_024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1_024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

/// A file name made of any text: its harmless characters, and a digest where some were not.
pub fn slug(text: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let kept: String = text.chars().filter(|c| keep(*c)).take(40).collect();
    if kept == text && !kept.is_empty() {
        return kept;
    }
    let digest = crate::id::Digest::of_bytes(text.as_bytes());
    format!("{kept}-{}", &digest.as_str()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_invisible_is_left() {
        let hostile = "a\u{1b}[31m\u{0}\u{202e}txt\u{200b}\r\n\tz\u{7f}";
        assert_eq!(visible(hostile), "a␛[31m␀⟨U+202E⟩txt⟨U+200B⟩␍\n\tz␡");
        assert_eq!(escape("<b a='1'>&\""), "&lt;b a=&#39;1&#39;&gt;&amp;&quot;");
        assert_eq!(markdown("a|b\n[x](y)"), "a\\|b \\[x\\]\\(y\\)");
    }

    #[test]
    fn names_are_harmless_and_differ() {
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
}
