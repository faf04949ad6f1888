//! Searches PDF: compressed streams, also those of earlier revisions, strings, and the text of pages.

use std::io::Read;

use flate2::read::ZlibDecoder;
use lopdf::{Dictionary, Document, LoadOptions, Object, Stream};

use super::FileScanner;

const STREAM: &[u8] = b"stream";
/// Filters whose output are pixels.
const IMAGE_FILTERS: [&[u8]; 4] = [
    b"DCTDecode",
    b"JPXDecode",
    b"CCITTFaxDecode",
    b"JBIG2Decode",
];

pub(super) fn search(scanner: &mut FileScanner<'_>, bytes: &[u8]) -> Result<(), String> {
    deflated_streams(scanner, bytes);
    let options = LoadOptions {
        max_decompressed_size: Some(scanner.left),
        ..LoadOptions::default()
    };
    let document = Document::load_mem_with_options(bytes, options)
        .map_err(|error| format!("not a readable PDF: {error}"))?;
    if document.is_encrypted() || document.was_encrypted() {
        return Err("an encrypted PDF".to_owned());
    }
    let pages = document.get_pages();
    if pages.is_empty() {
        return Err("a PDF without pages".to_owned());
    }
    for object in document.objects.values() {
        search_object(scanner, object)?;
    }
    let mut unreadable = Ok(());
    for page in pages.into_keys() {
        for text in document.extract_text_chunks_with_limit(&[page], scanner.left) {
            match text {
                Ok(text) => scanner.text(&text),
                Err(error) => {
                    unreadable = Err(format!("the text of page {page} is not readable: {error}"))
                }
            }
        }
    }
    unreadable
}

/// Everything that looks like a deflated stream, whether or not the document still refers to it.
fn deflated_streams(scanner: &mut FileScanner<'_>, bytes: &[u8]) {
    let mut at = 0;
    while let Some(found) = bytes[at..]
        .windows(STREAM.len())
        .position(|word| word == STREAM)
    {
        at += found + STREAM.len();
        let data = &bytes[at..];
        let data = data.strip_prefix(b"\r").unwrap_or(data);
        let data = data.strip_prefix(b"\n").unwrap_or(data);
        let mut content = Vec::new();
        let limit = scanner.left as u64 + 1;
        // What comes before an error is searched; most other streams fail at once.
        let _ = ZlibDecoder::new(data).take(limit).read_to_end(&mut content);
        search_stream(scanner, &content);
    }
}

fn search_stream(scanner: &mut FileScanner<'_>, content: &[u8]) {
    if !content.is_empty() {
        scanner.inner_file(content);
        scanner.bytes(&shown_strings(content));
    }
}

/// The strings that a content stream shows; those of an array are one text with other distances between letters.
fn shown_strings(content: &[u8]) -> Vec<u8> {
    let (mut shown, mut depth, mut escaped) = (Vec::new(), 0_usize, false);
    for byte in content {
        match (byte, depth) {
            (b'(', 0) => depth = 1,
            (b']' | b'j' | b'\'' | b'"', 0) => shown.push(b'\n'),
            (_, 0) => {}
            _ if escaped => {
                escaped = false;
                shown.push(*byte);
            }
            (b'\\', _) => escaped = true,
            (b')', 1) => depth = 0,
            _ => {
                match byte {
                    b'(' => depth += 1,
                    b')' => depth -= 1,
                    _ => {}
                }
                shown.push(*byte);
            }
        }
    }
    shown
}

fn search_object(scanner: &mut FileScanner<'_>, object: &Object) -> Result<(), String> {
    match object {
        Object::String(bytes, _) => scanner.bytes(bytes),
        Object::Array(items) => items
            .iter()
            .try_for_each(|item| search_object(scanner, item))?,
        Object::Dictionary(entries) => search_entries(scanner, entries)?,
        Object::Stream(stream) => {
            search_entries(scanner, &stream.dict)?;
            search_filtered(scanner, stream)?;
        }
        _ => {}
    }
    Ok(())
}

fn search_entries(scanner: &mut FileScanner<'_>, entries: &Dictionary) -> Result<(), String> {
    entries
        .iter()
        .try_for_each(|(_, value)| search_object(scanner, value))
}

/// Streams that are neither plain, nor just deflated, nor pictures.
fn search_filtered(scanner: &mut FileScanner<'_>, stream: &Stream) -> Result<(), String> {
    let filters = stream.filters().unwrap_or_default();
    let is_searched = filters.iter().all(|filter| *filter == b"FlateDecode")
        || filters.iter().any(|filter| IMAGE_FILTERS.contains(filter));
    if is_searched {
        return Ok(());
    }
    let content = stream.decompressed_content_with_limit(scanner.left);
    let content = content.map_err(|error| format!("a stream is not readable: {error}"))?;
    search_stream(scanner, &content);
    Ok(())
}
