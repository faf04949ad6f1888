//! Profiles documents: text, headings, tables and pages.

mod blocks;
mod cells;
mod markup;
mod office;
mod pdf;

use pybench_types::task::{DocumentProfile, FileKind};
use serde_json::Value;

use pybench_files::MAX_JSON;
use pybench_files::text;
use pybench_files::text::Decoded;

pub use blocks::Block;
pub use cells::Cells;
pub(super) use office::check_package;
pub(super) use pdf::pages as pdf_pages;

/// Limits of a profile: characters of the excerpt, characters of a heading, number of headings.
const MAX_EXCERPT: usize = 500;
const MAX_HEADING: usize = 200;
const MAX_HEADINGS: usize = 20;

/// The result of a format's reader.
#[derive(Debug, Default)]
struct ParsedDocument {
    text: String,
    headings: Vec<String>,
    pages: Option<u64>,
    tables: u64,
    code_cells: u64,
    encoding: Option<String>,
}

impl ParsedDocument {
    fn plain(decoded: Decoded<'_>) -> Self {
        Self {
            text: decoded.text.into_owned(),
            encoding: Some(decoded.encoding.to_owned()),
            ..Self::default()
        }
    }

    fn heading(&mut self, text: &str) {
        let words: Vec<_> = text.split_whitespace().collect();
        if !words.is_empty() && self.headings.len() < MAX_HEADINGS {
            self.headings
                .push(words.join(" ").chars().take(MAX_HEADING).collect());
        }
    }
}

/// Profiles a document.
///
/// # Errors
/// The reason why it is broken.
pub(super) fn profile(kind: FileKind, bytes: &[u8]) -> Result<DocumentProfile, String> {
    let found = match kind {
        FileKind::Txt
        | FileKind::Yaml
        | FileKind::Xml
        | FileKind::Log
        | FileKind::Ini
        | FileKind::Eml => ParsedDocument::plain(text::decode(bytes)?),
        FileKind::Md => markdown(ParsedDocument::plain(text::decode(bytes)?)),
        FileKind::Html => markup::html(&text::decode(bytes)?),
        FileKind::Svg => markup::svg(&text::decode(bytes)?)?,
        FileKind::Json => ParsedDocument::plain(text::decode(bytes)?),
        FileKind::Ipynb => notebook(bytes)?,
        FileKind::Pdf => pdf::read(bytes)?,
        FileKind::Docx => office::docx(bytes)?,
        FileKind::Pptx => office::pptx(bytes)?,
        other => return Err(format!("{} is no document", other.name())),
    };
    if found.text.trim().is_empty() && !matches!(kind, FileKind::Svg | FileKind::Pdf) {
        return Err("no text".into());
    }
    Ok(DocumentProfile {
        pages: found.pages,
        language: text::language(&found.text).map(str::to_owned),
        headings: found.headings,
        excerpt: found.text.trim().chars().take(MAX_EXCERPT).collect(),
        characters: found.text.chars().count() as u64,
        words: found.text.split_whitespace().count() as u64,
        lines: found.text.lines().count() as u64,
        encoding: found.encoding,
        tables: found.tables,
        code_cells: found.code_cells,
    })
}

/// The paragraphs, headings or lines of a document.
///
/// # Errors
/// The reason why it has none.
pub(super) fn blocks(kind: FileKind, bytes: &[u8]) -> Result<Vec<Block>, String> {
    match kind {
        FileKind::Html => blocks::html(bytes),
        FileKind::Pdf => blocks::pdf(bytes),
        FileKind::Docx => blocks::docx(bytes),
        FileKind::Pptx => blocks::pptx(bytes),
        other => Err(format!("{} is no such document", other.name())),
    }
}

/// The cells of the tables of a docx or html file, if tools agree on all of them.
///
/// # Errors
/// The reason why it cannot be read.
pub(super) fn tables(kind: FileKind, bytes: &[u8]) -> Result<Vec<Cells>, String> {
    match kind {
        FileKind::Html => cells::html(bytes),
        FileKind::Docx => cells::docx(bytes),
        other => Err(format!("{} is no such document", other.name())),
    }
}

/// Whether tools agree on the paragraphs of a document.
pub(super) fn is_plain(kind: FileKind, bytes: &[u8]) -> bool {
    kind == FileKind::Docx && blocks::is_plain_docx(bytes)
}

/// Finds the headings: lines outside of code fences that begin with `#`.
fn markdown(mut found: ParsedDocument) -> ParsedDocument {
    let text = std::mem::take(&mut found.text);
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let level = line.chars().take_while(|&c| c == '#').count();
        if !fenced && (1..=6).contains(&level) && line[level..].starts_with(' ') {
            found.heading(line[level..].trim().trim_end_matches('#'));
        }
    }
    found.text = text;
    found
}

/// Reads a notebook. Each cell counts as a page.
fn notebook(bytes: &[u8]) -> Result<ParsedDocument, String> {
    if bytes.len() > MAX_JSON {
        return Err(format!("larger than {} MiB", MAX_JSON >> 20));
    }
    let book: Value = serde_json::from_slice(bytes).map_err(|e| format!("not a notebook: {e}"))?;
    let cells = book["cells"].as_array().ok_or("a notebook without cells")?;
    let mut found = ParsedDocument {
        pages: Some(cells.len() as u64),
        ..ParsedDocument::default()
    };
    for cell in cells {
        let source = match &cell["source"] {
            Value::String(text) => text.clone(),
            Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
            _ => continue,
        };
        if cell["cell_type"] == "code" && !source.trim().is_empty() {
            found.code_cells += 1;
        }
        if cell["cell_type"] == "markdown" {
            let headings = markdown(ParsedDocument {
                text: source.clone(),
                ..ParsedDocument::default()
            })
            .headings;
            headings.iter().for_each(|heading| found.heading(heading));
        }
        found.text.push_str(&source);
        found.text.push_str("\n\n");
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
