//! Fuzz test of the template loader: any text is either loaded or rejected with problems.

use super::{Keywords, TEMPLATES, embedded_files, parse_template};

/// A template with a part of its text replaced.
fn spliced(templates: &[String], which: usize, at: usize, gone: usize, put: &[u8]) -> String {
    let text = templates[which % templates.len()].as_bytes();
    let at = at % text.len();
    let end = (at + gone).min(text.len());
    let bytes = [&text[..at], put, &text[end..]].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn fuzz_templates() {
    let files = embedded_files().unwrap().into_iter();
    let templates: Vec<String> = files
        .filter(|(name, _)| name.starts_with(TEMPLATES))
        .map(|(_, text)| text)
        .collect();
    bolero::check!()
        .with_type::<(u16, u16, u8, Vec<u8>)>()
        .for_each(|(which, at, gone, put)| {
            let text = spliced(
                &templates,
                (*which).into(),
                (*at).into(),
                (*gone).into(),
                put,
            );
            if let Err(problems) = parse_template("t.toml", &text, &Keywords::default()) {
                assert!(!problems.is_empty());
            }
        });
}
