//! Fuzz test of the template loader: any text is either loaded or rejected with problems.

use super::{EMBEDDED, Keywords, TEMPLATES, parse_template};

/// A template with a part of its text replaced.
fn spliced(which: usize, at: usize, gone: usize, put: &[u8]) -> String {
    let templates: Vec<&str> = EMBEDDED
        .iter()
        .filter(|(name, _)| name.starts_with(TEMPLATES))
        .map(|(_, text)| *text)
        .collect();
    let text = templates[which % templates.len()].as_bytes();
    let at = at % text.len();
    let end = (at + gone).min(text.len());
    let bytes = [&text[..at], put, &text[end..]].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn fuzz_templates() {
    bolero::check!()
        .with_type::<(u16, u16, u8, Vec<u8>)>()
        .for_each(|(which, at, gone, put)| {
            let text = spliced((*which).into(), (*at).into(), (*gone).into(), put);
            if let Err(problems) = parse_template("t.toml", &text, &Keywords::default()) {
                assert!(!problems.is_empty());
            }
        });
}
