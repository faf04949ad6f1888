//! Writes paragraphs and headings as a Word document, a page of HTML or a PDF, in a form that all tools read alike.

use std::fmt::Write as _;

use pybench_profile::{Block, Cells};
use pybench_types::task::FileKind;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::ruled;
use crate::office_file::{XML, content_types, escaped, relation, zipped};

/// Most characters of a line in a PDF.
const LINE: usize = 84;

/// The bytes of a file with these blocks, and with these tables after them; `None` if this kind of file cannot have them.
pub(crate) fn written(
    kind: FileKind,
    blocks: &[Block],
    tables: &[Cells],
    rng: &mut ChaCha8Rng,
) -> Option<Vec<u8>> {
    match kind {
        FileKind::Docx => docx(blocks, tables),
        FileKind::Html => Some(html(blocks, tables).into_bytes()),
        FileKind::Pdf => pdf(blocks, tables, rng.random_range(12..=36)),
        _ => None,
    }
}

fn html(blocks: &[Block], tables: &[Cells]) -> String {
    let tags = blocks.iter().map(|block| {
        let tag = match block.level {
            0 => "p".to_owned(),
            level => format!("h{level}"),
        };
        format!("<{tag}>{}</{tag}>\n", escaped(&block.text))
    });
    let body: String = tags.chain(tables.iter().map(html_table)).collect();
    format!(
        "<!DOCTYPE html>\n<html>\n<head><meta charset=\"utf-8\"><title>Document</title></head>\n<body>\n{body}</body>\n</html>\n"
    )
}

fn html_table(table: &Cells) -> String {
    let row = |(at, cells): (usize, &Vec<String>)| {
        let tag = if at == 0 { "th" } else { "td" };
        let cells = cells.iter();
        let cells = cells.map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = table.iter().enumerate().map(row).collect();
    format!("<table>\n{rows}</table>\n")
}

/// A table of a Word document. A paragraph has to follow it.
fn word_table(table: &Cells) -> String {
    let row = |cells: &Vec<String>| {
        let cells = cells.iter().map(|cell| {
            let text = escaped(cell);
            format!("<w:tc><w:p><w:r><w:t xml:space=\"preserve\">{text}</w:t></w:r></w:p></w:tc>")
        });
        format!("<w:tr>{}</w:tr>", cells.collect::<String>())
    };
    let rows: String = table.iter().map(row).collect();
    let columns = "<w:gridCol/>".repeat(table.first().map_or(0, Vec::len));
    format!("<w:tbl><w:tblPr/><w:tblGrid>{columns}</w:tblGrid>{rows}</w:tbl><w:p/>")
}

/// The namespace of a Word document.
const WORD: &str = "http://schemas.openxmlformats.org/wordprocessingml/2006/main";
const WORD_TYPE: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml";

fn docx(blocks: &[Block], tables: &[Cells]) -> Option<Vec<u8>> {
    let paragraphs = blocks.iter().map(|block| {
        let style = match block.level {
            0 => String::new(),
            level => format!("<w:pPr><w:pStyle w:val=\"Heading{level}\"/></w:pPr>"),
        };
        let text = escaped(&block.text);
        format!("<w:p>{style}<w:r><w:t xml:space=\"preserve\">{text}</w:t></w:r></w:p>")
    });
    let body: String = paragraphs.chain(tables.iter().map(word_table)).collect();
    let types = [
        ("/word/document.xml", "document.main"),
        ("/word/styles.xml", "styles"),
    ];
    zipped(&[
        ("[Content_Types].xml", content_types(WORD_TYPE, types)),
        (
            "_rels/.rels",
            relation("officeDocument", "word/document.xml"),
        ),
        (
            "word/_rels/document.xml.rels",
            relation("styles", "styles.xml"),
        ),
        ("word/styles.xml", styles()),
        (
            "word/document.xml",
            format!("{XML}<w:document xmlns:w=\"{WORD}\"><w:body>{body}</w:body></w:document>"),
        ),
    ])
}

/// The style of paragraphs and those of headings.
fn styles() -> String {
    let headings = (1..=9).map(|level| {
        let size = 36 - 2 * level;
        format!(
            "<w:style w:type=\"paragraph\" w:styleId=\"Heading{level}\"><w:name w:val=\"heading {level}\"/>\
             <w:basedOn w:val=\"Normal\"/><w:rPr><w:b/><w:sz w:val=\"{size}\"/></w:rPr></w:style>"
        )
    });
    let headings: String = headings.collect();
    format!(
        "{XML}<w:styles xmlns:w=\"{WORD}\"><w:style w:type=\"paragraph\" w:default=\"1\" w:styleId=\"Normal\">\
         <w:name w:val=\"Normal\"/></w:style>{headings}</w:styles>"
    )
}

/// Width of a page of text in a PDF, in points.
const PAGE: usize = 595;

/// A PDF with so many lines on a page, and pages of tables after them; `None` if a word is too long for a line, or a
/// character is not in ASCII.
fn pdf(blocks: &[Block], tables: &[Cells], per_page: usize) -> Option<Vec<u8>> {
    let mut lines = Vec::new();
    for block in blocks {
        lines.extend(wrapped(&block.text)?);
    }
    let mut pages: Vec<(String, usize)> = lines
        .chunks(per_page)
        .map(|page| (page_of_lines(page), PAGE))
        .collect();
    for table in tables {
        pages.push(ruled::page(table)?);
    }
    let count = pages.len();
    let kids: Vec<String> = (0..count).map(|at| format!("{} 0 R", 4 + 2 * at)).collect();
    let mut objects = vec![
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        format!(
            "<< /Type /Pages /Kids [{}] /Count {count} >>",
            kids.join(" ")
        ),
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
            .to_owned(),
    ];
    for (at, (shown, width)) in pages.into_iter().enumerate() {
        objects.push(format!(
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} 842] /Contents {} 0 R \
             /Resources << /Font << /F1 3 0 R >> >> >>",
            5 + 2 * at
        ));
        objects.push(format!(
            "<< /Length {} >>\nstream\n{shown}endstream",
            shown.len()
        ));
    }
    Some(assembled(&objects).into_bytes())
}

fn page_of_lines(lines: &[String]) -> String {
    let shown = lines.iter().enumerate().map(|(row, line)| {
        let line = ruled::literal(line);
        format!("BT /F1 10 Tf 60 {} Td ({line}) Tj ET\n", 780 - 20 * row)
    });
    shown.collect()
}

/// The file of these objects, which are numbered from 1.
fn assembled(objects: &[String]) -> String {
    let mut file = "%PDF-1.4\n".to_owned();
    let mut table = format!("xref\n0 {}\n0000000000 65535 f \n", objects.len() + 1);
    // Writing to a String cannot fail.
    for (at, object) in objects.iter().enumerate() {
        let _ = writeln!(table, "{:010} 00000 n ", file.len());
        let _ = write!(file, "{} 0 obj\n{object}\nendobj\n", at + 1);
    }
    let start = file.len();
    let size = objects.len() + 1;
    format!("{file}{table}trailer\n<< /Size {size} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF\n")
}

/// A paragraph in lines.
fn wrapped(text: &str) -> Option<Vec<String>> {
    if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        return None;
    }
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        if word.len() > LINE {
            return None;
        }
        match lines.last_mut() {
            Some(open) if open.is_empty() => open.push_str(word),
            Some(open) if open.len() + 1 + word.len() <= LINE => {
                open.push(' ');
                open.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    Some(lines)
}
