//! Reads docx and pptx files.

use std::io::{self, Cursor, Read};

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use zip::ZipArchive;

use super::ParsedDocument;
use pybench_files::entity;

/// Maximum unpacked size of all parts of a document, in bytes.
const MAX_UNPACKED: u64 = 64 << 20;

/// Checks the unpacked size of every part, so that later readers of the package stay within `limit` bytes.
pub(crate) fn check_package(bytes: &[u8], limit: u64) -> Result<(), String> {
    let mut archive = open(bytes)?;
    let mut left = limit;
    for index in 0..archive.len() {
        let part = archive
            .by_index(index)
            .map_err(|e| format!("part {index}: {e}"))?;
        let read = io::copy(&mut part.take(left + 1), &mut io::sink())
            .map_err(|e| format!("part {index}: {e}"))?;
        if read > left {
            return Err(format!("unpacks to more than {} MiB", limit >> 20));
        }
        left -= read;
    }
    Ok(())
}

fn open(bytes: &[u8]) -> Result<ZipArchive<Cursor<&[u8]>>, String> {
    let archive =
        ZipArchive::new(Cursor::new(bytes)).map_err(|e| format!("not a readable package: {e}"))?;
    if archive.len() > 10_000 {
        return Err("more than 10000 parts".into());
    }
    Ok(archive)
}

/// Reads the paragraphs, headings (by style: `Heading 1`, `Title`) and tables of a Word document.
pub(super) fn docx(bytes: &[u8]) -> Result<ParsedDocument, String> {
    let mut found = ParsedDocument::default();
    paragraphs(&document_part(bytes)?, &mut found)?;
    Ok(found)
}

/// The part of a Word document that holds its text.
pub(super) fn document_part(bytes: &[u8]) -> Result<Vec<u8>, String> {
    check_package(bytes, MAX_UNPACKED)?;
    part(&mut open(bytes)?, "word/document.xml")
}

/// Reads the slides of a presentation in the order of their numbers. The title of a slide is a heading.
pub(super) fn pptx(bytes: &[u8]) -> Result<ParsedDocument, String> {
    check_package(bytes, MAX_UNPACKED)?;
    let mut archive = open(bytes)?;
    let number = |name: &str| -> Option<u32> {
        let rest = name.strip_prefix("ppt/slides/slide")?;
        rest.strip_suffix(".xml")?.parse().ok()
    };
    let names = archive.file_names().flatten();
    let mut slides: Vec<u32> = names.filter_map(|name| number(&name)).collect();
    slides.sort_unstable();
    let mut found = ParsedDocument {
        pages: Some(slides.len() as u64),
        ..ParsedDocument::default()
    };
    for slide in slides {
        let xml = part(&mut archive, &format!("ppt/slides/slide{slide}.xml"))?;
        paragraphs(&xml, &mut found)?;
    }
    Ok(found)
}

fn part(archive: &mut ZipArchive<Cursor<&[u8]>>, name: &str) -> Result<Vec<u8>, String> {
    let part = archive.by_name(name).map_err(|_| format!("no {name}"))?;
    let mut xml = Vec::new();
    part.take(MAX_UNPACKED)
        .read_to_end(&mut xml)
        .map_err(|e| format!("its text: {e}"))?;
    Ok(xml)
}

/// Adds the paragraphs of a part. Word's and PowerPoint's elements have the same local names.
fn paragraphs(xml: &[u8], found: &mut ParsedDocument) -> Result<(), String> {
    let mut reader = Reader::from_reader(xml);
    let mut paragraph = Paragraph::default();
    let (mut in_text, mut depth, mut buffer) = (false, 0i64, Vec::new());
    loop {
        buffer.clear();
        let event = reader.read_event_into(&mut buffer);
        match event.map_err(|e| format!("its text is not well-formed: {e}"))? {
            Event::Start(tag) => {
                depth += 1;
                in_text = tag.local_name().as_ref() == "t";
                paragraph.tag(&tag, found);
            }
            Event::Empty(tag) => paragraph.tag(&tag, found),
            Event::Text(text) if in_text => {
                paragraph.text.push_str(&text);
            }
            Event::GeneralRef(named) if in_text => paragraph.text.push_str(entity::resolve(&named)),
            Event::End(tag) => {
                depth -= 1;
                in_text = false;
                match tag.local_name().as_ref() {
                    "p" => paragraph.end(found),
                    // A shape of a slide, whose title may have several paragraphs.
                    "sp" => paragraph.in_title = false,
                    _ => {}
                }
            }
            Event::Eof if depth != 0 => return Err("its text ends inside an element".into()),
            Event::Eof => return Ok(()),
            _ => {}
        }
    }
}

#[derive(Default)]
struct Paragraph {
    text: String,
    heading: bool,
    /// In the title of a slide, where every paragraph is a heading.
    in_title: bool,
}

impl Paragraph {
    fn tag(&mut self, tag: &BytesStart<'_>, found: &mut ParsedDocument) {
        match tag.local_name().as_ref() {
            "tbl" => found.tables += 1,
            "tab" | "br" => self.text.push(' '),
            "pStyle" => {
                let style = attribute(tag, "val").unwrap_or_default();
                self.heading |= style.starts_with("heading") || style == "title";
            }
            "ph" => {
                let kind = attribute(tag, "type").unwrap_or_default();
                self.in_title |= kind == "title" || kind == "ctrtitle";
            }
            _ => {}
        }
    }

    fn end(&mut self, found: &mut ParsedDocument) {
        let next = Self {
            in_title: self.in_title,
            ..Self::default()
        };
        let paragraph = std::mem::replace(self, next);
        if paragraph.heading || paragraph.in_title {
            found.heading(&paragraph.text);
        }
        found.text.push_str(&paragraph.text);
        found.text.push('\n');
    }
}

/// The value of an attribute, in lower case.
pub(super) fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let mut attributes = tag.attributes().flatten();
    let found = attributes.find(|a| a.key.local_name().as_ref() == name)?;
    Some(found.value.to_ascii_lowercase())
}
