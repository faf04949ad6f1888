//! Parts that all Office Open XML files (ECMA-376) have, and the zip file around them.

use std::io::{Cursor, Write as _};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// How each part begins.
pub(crate) const XML: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n";
/// The namespace of relations between parts.
pub(crate) const RELATIONS: &str =
    "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const PACKAGE: &str = "http://schemas.openxmlformats.org/package/2006";

/// A text in XML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The part with one relation, `rId1`, to the part `target`.
pub(crate) fn relation(kind: &str, target: &str) -> String {
    format!(
        "{XML}<Relationships xmlns=\"{PACKAGE}/relationships\">\
         <Relationship Id=\"rId1\" Type=\"{RELATIONS}/{kind}\" Target=\"{target}\"/></Relationships>"
    )
}

/// The part that names the types of other parts, which end like `document.main` after `application`.
pub(crate) fn content_types(application: &str, parts: [(&str, &str); 2]) -> String {
    let parts = parts.map(|(name, kind)| {
        format!("<Override PartName=\"{name}\" ContentType=\"{application}.{kind}+xml\"/>")
    });
    format!(
        "{XML}<Types xmlns=\"{PACKAGE}/content-types\">\
         <Default Extension=\"rels\" ContentType=\"application/vnd.openxmlformats-package.relationships+xml\"/>\
         <Default Extension=\"xml\" ContentType=\"application/xml\"/>{}</Types>",
        parts.concat()
    )
}

/// A zip file of parts.
pub(crate) fn zipped(parts: &[(&str, String)]) -> Option<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in parts {
        writer
            .start_file(*name, SimpleFileOptions::default())
            .ok()?;
        writer.write_all(text.as_bytes()).ok()?;
    }
    writer.finish().ok().map(Cursor::into_inner)
}
