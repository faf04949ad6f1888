//! Code that extracts the paragraphs of a document, or the lines of its pages.

use pybench_types::task::FileKind;

/// Ways to read each kind of document.
pub(crate) const READERS: usize = 2;

/// Loads a document and shows how it begins: a list of (level, text) for docx and html, where the level of a paragraph that
/// is no heading is 0, and a list of pages, each a list of lines, for pdf. `path` is a Python literal.
pub(crate) fn look(kind: FileKind, path: &str, source: &str, reader: usize) -> String {
    let code = match (kind, reader % READERS) {
        (FileKind::Docx, 0) => DOCX,
        (FileKind::Docx, _) => DOCX_XML,
        (FileKind::Html, 0) => HTML,
        (FileKind::Html, _) => HTML_LXML,
        (_, 0) => PDF,
        _ => PDF_PLUMBER,
    };
    let shown = match kind {
        FileKind::Pdf => SHOW_PAGES,
        _ => SHOW_PARAGRAPHS,
    };
    format!("{code}\n{shown}")
        .replace("$path", path)
        .replace("$source", source)
}

const SHOW_PARAGRAPHS: &str = r#"print(len($source), "headings and paragraphs")
for level, text in $source[:6]:
    print(level, text[:80])"#;

const SHOW_PAGES: &str = r#"print([len(page) for page in $source], "lines")
for line in $source[0][:6]:
    print(line[:80])"#;

const DOCX: &str = r#"from docx import Document

$source = []
for paragraph in Document($path).paragraphs:
    style, text = paragraph.style.name, " ".join(paragraph.text.split())
    if text:
        $source.append((int(style.split()[-1]) if style.startswith("Heading ") else 0, text))
"#;

const DOCX_XML: &str = r#"import zipfile
import xml.etree.ElementTree as ET

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
with zipfile.ZipFile($path) as package:
    body = ET.fromstring(package.read("word/document.xml")).find(W + "body")
$source = []
for paragraph in body.findall(W + "p"):
    text = " ".join("".join(part.text or "" for part in paragraph.iter(W + "t")).split())
    style = paragraph.find(f"{W}pPr/{W}pStyle")
    name = "" if style is None else style.get(W + "val")
    if text:
        $source.append((int(name[len("Heading"):]) if name.startswith("Heading") else 0, text))
"#;

const HTML: &str = r#"from bs4 import BeautifulSoup

with open($path, encoding="utf-8") as file:
    soup = BeautifulSoup(file, "html.parser")
$source = []
for tag in soup.find_all(["p", "h1", "h2", "h3", "h4", "h5", "h6"]):
    text = " ".join(tag.get_text().split())
    if text:
        $source.append((0 if tag.name == "p" else int(tag.name[1]), text))
"#;

const HTML_LXML: &str = r#"import lxml.html

with open($path, encoding="utf-8") as file:
    root = lxml.html.fromstring(file.read())
$source = []
for tag in root.iter("p", "h1", "h2", "h3", "h4", "h5", "h6"):
    text = " ".join(tag.text_content().split())
    if text:
        $source.append((0 if tag.tag == "p" else int(tag.tag[1]), text))
"#;

const PDF: &str = r#"from pypdf import PdfReader

$source = []
for page in PdfReader($path).pages:
    lines = [" ".join(line.split()) for line in page.extract_text().split("\n")]
    $source.append([line for line in lines if line])
"#;

const PDF_PLUMBER: &str = r#"import pdfplumber

$source = []
with pdfplumber.open($path) as pdf:
    for page in pdf.pages:
        lines = [" ".join(line.split()) for line in page.extract_text().split("\n")]
        $source.append([line for line in lines if line])
"#;
