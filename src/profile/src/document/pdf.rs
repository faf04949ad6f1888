//! Reads the pages and text of PDF files.

use lopdf::{Document, LoadOptions};

use super::ParsedDocument;

/// Limits: unpacked bytes per stream, pages read, bytes of text.
const MAX_STREAM: usize = 32 << 20;
const MAX_PAGES: usize = 500;
const MAX_TEXT: usize = 4 << 20;

pub(super) fn read(bytes: &[u8]) -> Result<ParsedDocument, String> {
    let options = LoadOptions {
        max_decompressed_size: Some(MAX_STREAM),
        ..LoadOptions::default()
    };
    let document = Document::load_mem_with_options(bytes, options)
        .map_err(|e| format!("not a readable PDF: {e}"))?;
    if document.is_encrypted() || document.was_encrypted() {
        return Err("encrypted".into());
    }
    let pages: Vec<u32> = document.get_pages().into_keys().collect();
    if pages.is_empty() {
        return Err("no pages".into());
    }
    let mut found = ParsedDocument {
        pages: Some(pages.len() as u64),
        ..ParsedDocument::default()
    };
    for &page in pages.iter().take(MAX_PAGES) {
        // Skip a page whose text cannot be read (for example a font without a character map).
        if let Ok(text) = document.extract_text_with_limit(&[page], MAX_STREAM) {
            found.text.push_str(text.trim_end());
            found.text.push('\n');
        }
        if found.text.len() > MAX_TEXT {
            return Err(format!("more than {} MiB of text", MAX_TEXT >> 20));
        }
    }
    for heading in guess_headings(&found.text) {
        found.heading(&heading);
    }
    Ok(found)
}

/// Guesses headings: numbered lines such as `1 Introduction` or `2.3 Results`.
fn guess_headings(text: &str) -> Vec<String> {
    let heading = |line: &&str| {
        let Some((number, title)) = line.trim().split_once(' ') else {
            return false;
        };
        let number = number.trim_end_matches('.');
        let numbered = !number.is_empty()
            && number.len() < 8
            && number
                .split('.')
                .all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
        let title = title.trim();
        numbered
            && title.starts_with(char::is_uppercase)
            && title.len() < 80
            && !title.ends_with(['.', ',', ';'])
    };
    text.lines().filter(heading).map(str::to_owned).collect()
}
