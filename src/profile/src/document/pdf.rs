//! Reads the pages and text of PDF files.

use lopdf::{Document, LoadOptions};

use super::ParsedDocument;

/// Limits: unpacked bytes per stream, pages read, bytes of text.
const MAX_STREAM: usize = 32 << 20;
const MAX_PAGES: usize = 500;
const MAX_TEXT: usize = 4 << 20;

pub(super) fn read(bytes: &[u8]) -> Result<ParsedDocument, String> {
    let pages = pages(bytes)?;
    let mut found = ParsedDocument {
        pages: Some(pages.len() as u64),
        text: pages.concat(),
        ..ParsedDocument::default()
    };
    for heading in guess_headings(&found.text) {
        found.heading(&heading);
    }
    Ok(found)
}

/// The text of each page, with a line end after it; "" for a page whose text cannot be read (for example for want of a
/// character map) and for those after the limit.
pub(crate) fn pages(bytes: &[u8]) -> Result<Vec<String>, String> {
    let options = LoadOptions {
        max_decompressed_size: Some(MAX_STREAM),
        ..LoadOptions::default()
    };
    let document = Document::load_mem_with_options(bytes, options)
        .map_err(|e| format!("not a readable PDF: {e}"))?;
    if document.is_encrypted() || document.was_encrypted() {
        return Err("encrypted".into());
    }
    let numbers: Vec<u32> = document.get_pages().into_keys().collect();
    if numbers.is_empty() {
        return Err("no pages".into());
    }
    let mut pages = vec![String::new(); numbers.len()];
    let mut size = 0;
    for (page, number) in pages.iter_mut().zip(numbers).take(MAX_PAGES) {
        if let Ok(text) = document.extract_text_with_limit(&[number], MAX_STREAM) {
            *page = format!("{}\n", text.trim_end());
            size += page.len();
        }
        if size > MAX_TEXT {
            return Err(format!("more than {} MiB of text", MAX_TEXT >> 20));
        }
    }
    Ok(pages)
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
