//! Reads docx files.

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
    check_package(bytes, MAX_UNPACKED)?;
    let mut archive = open(bytes)?;
    let part = archive
        .by_name("word/document.xml")
        .map_err(|_| "no word/document.xml")?;
    let mut xml = Vec::new();
    part.take(MAX_UNPACKED)
        .read_to_end(&mut xml)
        .map_err(|e| format!("its text: {e}"))?;
    let mut found = ParsedDocument::default();
    let mut reader = Reader::from_reader(xml.as_slice());
    let mut paragraph = Paragraph::default();
    let (mut in_text, mut depth, mut buffer) = (false, 0i64, Vec::new());
    loop {
        buffer.clear();
        let event = reader.read_event_into(&mut buffer);
        match event.map_err(|e| format!("its text is not well-formed: {e}"))? {
            Event::Start(tag) => {
                depth += 1;
                in_text = tag.local_name().as_ref() == "t";
                paragraph.tag(&tag, &mut found);
            }
            Event::Empty(tag) => paragraph.tag(&tag, &mut found),
            Event::Text(text) if in_text => {
                paragraph.text.push_str(&text);
            }
            Event::GeneralRef(named) if in_text => paragraph.text.push_str(entity::resolve(&named)),
            Event::End(tag) => {
                depth -= 1;
                in_text = false;
                if tag.local_name().as_ref() == "p" {
                    paragraph.end(&mut found);
                }
            }
            Event::Eof if depth != 0 => return Err("its text ends inside an element".into()),
            Event::Eof => return Ok(found),
            _ => {}
        }
    }
}

#[derive(Default)]
struct Paragraph {
    text: String,
    heading: bool,
}

impl Paragraph {
    fn tag(&mut self, tag: &BytesStart<'_>, found: &mut ParsedDocument) {
        match tag.local_name().as_ref() {
            "tbl" => found.tables += 1,
            "tab" | "br" => self.text.push(' '),
            "pStyle" => {
                let values = tag
                    .attributes()
                    .flatten()
                    .filter(|a| a.key.local_name().as_ref() == "val");
                let styles = values.map(|a| a.value.to_ascii_lowercase());
                for style in styles {
                    self.heading |= style.starts_with("heading") || style == "title";
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, found: &mut ParsedDocument) {
        let paragraph = std::mem::take(self);
        if paragraph.heading {
            found.heading(&paragraph.text);
        }
        found.text.push_str(&paragraph.text);
        found.text.push('\n');
    }
}
