//! The paragraphs, headings and lines of a document, one by one, for tasks that extract them.

use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};
use scraper::{Html, Selector};

use pybench_files::{entity, text};

use super::{office, pdf};

/// A paragraph, a heading, or a line of a page, with single spaces between words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    pub text: String,
    /// 1 to 9 for a heading, else 0.
    pub level: u8,
    /// The page from 1, where the document has pages; else 0.
    pub page: usize,
}

impl Block {
    /// A block of this text; `None` if it is blank.
    pub(super) fn new(text: &str, level: u8, page: usize) -> Option<Self> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        (!text.is_empty()).then_some(Self { text, level, page })
    }
}

/// Reads a page of HTML: its paragraphs and headings.
pub(super) fn html(bytes: &[u8]) -> Result<Vec<Block>, String> {
    let decoded = text::decode(bytes)?;
    let page = Html::parse_document(&decoded.text);
    let selector = Selector::parse("p, h1, h2, h3, h4, h5, h6").map_err(|e| e.to_string())?;
    let blocks = page.select(&selector).filter_map(|element| {
        let level = element.value().name().strip_prefix('h');
        let level = level.and_then(|level| level.parse().ok()).unwrap_or(0);
        Block::new(&element.text().collect::<String>(), level, 0)
    });
    Ok(blocks.collect())
}

/// Reads the lines of each page of a PDF.
pub(super) fn pdf(bytes: &[u8]) -> Result<Vec<Block>, String> {
    let pages = pdf::pages(bytes)?;
    let lines = pages.iter().enumerate().flat_map(|(at, page)| {
        page.lines()
            .filter_map(move |line| Block::new(line, 0, at + 1))
    });
    Ok(lines.collect())
}

/// Reads the paragraphs of a presentation.
pub(super) fn pptx(bytes: &[u8]) -> Result<Vec<Block>, String> {
    let found = office::pptx(bytes)?;
    let lines = found.text.lines();
    Ok(lines.filter_map(|line| Block::new(line, 0, 0)).collect())
}

/// Reads the paragraphs of a Word document that are in no table, frame or field: those that every tool finds.
pub(super) fn docx(bytes: &[u8]) -> Result<Vec<Block>, String> {
    let xml = office::document_part(bytes)?;
    let mut reader = Reader::from_reader(xml.as_slice());
    let (mut blocks, mut buffer) = (Vec::new(), Vec::new());
    let mut open: Vec<String> = Vec::new();
    let (mut text, mut level) = (String::new(), 0);
    loop {
        buffer.clear();
        let event = reader.read_event_into(&mut buffer);
        match event.map_err(|e| format!("its text is not well-formed: {e}"))? {
            Event::Start(tag) => {
                level = heading_level(&tag).unwrap_or(level);
                open.push(tag.local_name().as_ref().to_owned());
            }
            Event::Empty(tag) => match tag.local_name().as_ref() {
                "tab" | "br" if is_run(&open) => text.push(' '),
                _ => level = heading_level(&tag).unwrap_or(level),
            },
            Event::Text(part) if is_text(&open) => text.push_str(&part),
            Event::GeneralRef(named) if is_text(&open) => text.push_str(entity::resolve(&named)),
            Event::End(_) => {
                if is_paragraph(&open) {
                    blocks.extend(Block::new(&text, level, 0));
                    (text, level) = (String::new(), 0);
                }
                open.pop();
            }
            Event::Eof if !open.is_empty() => return Err("its text ends inside an element".into()),
            Event::Eof => return Ok(blocks),
            _ => {}
        }
    }
}

/// Whether the innermost element is a paragraph of the body itself.
fn is_paragraph(open: &[String]) -> bool {
    open == ["document", "body", "p"]
}

fn is_run(open: &[String]) -> bool {
    open == ["document", "body", "p", "r"]
}

fn is_text(open: &[String]) -> bool {
    open == ["document", "body", "p", "r", "t"]
}

/// The level that a paragraph's style gives it; `None` if the element names no style.
fn heading_level(tag: &BytesStart<'_>) -> Option<u8> {
    if tag.local_name().as_ref() != "pStyle" {
        return None;
    }
    let style = office::attribute(tag, "val").unwrap_or_default();
    let level = style.strip_prefix("heading").map(str::trim);
    Some(level.and_then(|level| level.parse().ok()).unwrap_or(0))
}

/// Whether each paragraph of a Word document holds plain runs of text only, so that tools agree on its text.
pub(super) fn is_plain_docx(bytes: &[u8]) -> bool {
    const ODD: [&str; 12] = [
        "<w:hyperlink",
        "<w:ins ",
        "<w:del ",
        "<w:sdt>",
        "<w:smartTag",
        "<w:fldSimple",
        "<w:instrText",
        "AlternateContent",
        "<w:tab/>",
        "<w:br",
        "<w:sym",
        "Hyphen/>",
    ];
    let xml = office::document_part(bytes).unwrap_or_default();
    let xml = String::from_utf8_lossy(&xml);
    !xml.is_empty() && !ODD.iter().any(|odd| xml.contains(odd))
}
