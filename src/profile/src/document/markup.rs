//! Reads HTML and SVG.

use quick_xml::Reader;
use quick_xml::events::Event;
use scraper::{Html, Node, Selector};

use super::ParsedDocument;
use pybench_files::text::Decoded;

/// Reads the visible text, headings and tables of a page.
pub(super) fn html(decoded: &Decoded<'_>) -> ParsedDocument {
    let page = Html::parse_document(&decoded.text);
    let mut found = ParsedDocument {
        encoding: Some(decoded.encoding.to_owned()),
        ..ParsedDocument::default()
    };
    for node in page.tree.nodes() {
        let Node::Text(text) = node.value() else {
            continue;
        };
        let parent = node
            .parent()
            .and_then(|p| p.value().as_element().map(|e| e.name()));
        if !matches!(
            parent,
            Some("script" | "style" | "noscript" | "template" | "head")
        ) {
            found.text.push_str(text);
        }
    }
    if let Ok(selector) = Selector::parse("h1, h2, h3, h4, h5, h6") {
        for heading in page.select(&selector) {
            found.heading(&heading.text().collect::<String>());
        }
    }
    if let Ok(selector) = Selector::parse("table") {
        found.tables = page.select(&selector).count() as u64;
    }
    found
}

/// Reads an SVG and checks that it is well-formed. Its title counts as a heading.
pub(super) fn svg(decoded: &Decoded<'_>) -> Result<ParsedDocument, String> {
    let mut found = ParsedDocument {
        encoding: Some(decoded.encoding.to_owned()),
        ..ParsedDocument::default()
    };
    let mut reader = Reader::from_str(&decoded.text);
    let (mut open, mut root) = (Vec::new(), false);
    loop {
        match reader
            .read_event()
            .map_err(|e| format!("not well-formed XML: {e}"))?
        {
            Event::Start(tag) => {
                let name = tag.local_name().as_ref().to_owned();
                root |= open.is_empty() && name == "svg";
                open.push(name);
            }
            Event::Empty(tag) => root |= open.is_empty() && tag.local_name().as_ref() == "svg",
            Event::End(_) => {
                open.pop();
            }
            Event::Text(text) => match open.last().map(String::as_str) {
                Some("style" | "script") | None => {}
                Some(name) => {
                    let text = text.trim();
                    if name == "title" {
                        found.heading(text);
                    }
                    if !text.is_empty() {
                        found.text.push_str(text);
                        found.text.push('\n');
                    }
                }
            },
            Event::Eof if !open.is_empty() => return Err("ends inside an element".into()),
            Event::Eof if !root => return Err("its root is no <svg>".into()),
            Event::Eof => return Ok(found),
            _ => {}
        }
    }
}
