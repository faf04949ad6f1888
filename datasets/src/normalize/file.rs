//! Digests of files without the timestamps and random names that their formats contain.

use std::io::{Cursor, Read};
use std::sync::LazyLock;

use pybench_types::id::Digest;
use regex::Regex;
use regex::bytes::Regex as ByteRegex;
use zip::ZipArchive;

use super::{number_matches, text};

/// Largest archive member that is read, in bytes.
const MAX_MEMBER_BYTES: u64 = 64 << 20;
/// Largest archive that is read, in unpacked bytes.
const MAX_UNPACKED_BYTES: u64 = 256 << 20;
/// Maximum number of members in an archive.
const MAX_MEMBERS: usize = 10_000;
/// Maximum nesting of archives.
const MAX_DEPTH: u32 = 2;
/// Longest text that is normalized, in bytes. Longer texts are hashed unchanged.
const MAX_TEXT_BYTES: usize = 32 << 20;

/// Dates in the properties of an Office document.
static OFFICE_DATES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(<dcterms:(?:created|modified)[^>]{0,80}>)[^<]{0,80}(</dcterms)").ok()
});
/// Dates and identifiers in the dictionaries and the XMP packet of a PDF.
static PDF: LazyLock<Option<ByteRegex>> = LazyLock::new(|| {
    ByteRegex::new(
        r"(?-u)/(?:CreationDate|ModDate)\s{0,4}\([^)]{0,80}\)|/ID\s{0,4}\[[^\]]{0,300}\]|<xmp:(?:Create|Modify|Metadata)Date>[^<]{0,80}<|(?:uuid:|digest \()[0-9a-fA-F-]{32,36}",
    )
    .ok()
});
/// The date that matplotlib writes into an SVG.
static SVG_DATE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"<dc:date>[^<]{0,80}</dc:date>").ok());
/// Random ids that matplotlib writes into an SVG.
static SVG_NAMES: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b[mpcFh][0-9a-f]{10}\b|\bimage[0-9a-f]{10}\b").ok());
/// Ids of notebook cells.
static CELL_NAMES: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r#"(?m)("id": ?")[0-9a-f]{8}(?:-[0-9a-f-]{27})?""#).ok());

/// Digest of a file's content. It ignores creation dates in Office documents, PDF, PNG and SVG, timestamps in
/// archives (zip, npz, gzip), random ids in SVG and notebooks, and whatever [`text`] removes from texts. `path`
/// only selects the rules for text files.
pub fn content_digest(path: &str, bytes: &[u8]) -> Digest {
    digest_of(path, bytes, 0)
}

fn digest_of(path: &str, bytes: &[u8], depth: u32) -> Digest {
    let has_extension = |ending: &str| path.to_ascii_lowercase().ends_with(ending);
    let plain = || Digest::of_bytes(bytes);
    match bytes {
        [b'P', b'K', 3, 4, ..] if depth < MAX_DEPTH => {
            archive_digest(bytes, depth).unwrap_or_else(plain)
        }
        [0x1f, 0x8b, _, _, _, _, _, _, rest @ ..] => Digest::of_bytes(rest),
        [b'%', b'P', b'D', b'F', ..] => match &*PDF {
            Some(rule) => Digest::of_bytes(&rule.replace_all(bytes, &b""[..])),
            None => plain(),
        },
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, chunks @ ..] => {
            png_digest(chunks).unwrap_or_else(plain)
        }
        _ => match std::str::from_utf8(bytes) {
            Ok(words) if words.len() <= MAX_TEXT_BYTES => Digest::of_bytes(
                normalize_text(words, has_extension(".svg"), has_extension(".ipynb")).as_bytes(),
            ),
            _ => plain(),
        },
    }
}

fn normalize_text(words: &str, svg: bool, notebook: bool) -> String {
    let mut words = text(words);
    let without = |words: &str, rule: &Option<Regex>, to: &str| match rule {
        Some(rule) => rule.replace_all(words, to).into_owned(),
        None => words.to_owned(),
    };
    if svg {
        words = without(&words, &SVG_DATE, "");
        if let Some(rule) = &*SVG_NAMES {
            words = number_matches(&words, rule);
        }
    }
    if notebook {
        words = without(&words, &CELL_NAMES, "$1\"");
    }
    words
}

/// Digest over names and contents of all members, sorted by name. `None` if the archive is invalid or too large.
fn archive_digest(bytes: &[u8], depth: u32) -> Option<Digest> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).ok()?;
    if archive.len() > MAX_MEMBERS {
        return None;
    }
    let (mut members, mut total) = (Vec::new(), 0);
    for index in 0..archive.len() {
        let member = archive.by_index(index).ok()?;
        let name = member.name().ok()?.into_owned();
        let mut unpacked = Vec::new();
        member
            .take(MAX_MEMBER_BYTES + 1)
            .read_to_end(&mut unpacked)
            .ok()?;
        total += unpacked.len() as u64;
        if unpacked.len() as u64 > MAX_MEMBER_BYTES || total > MAX_UNPACKED_BYTES {
            return None;
        }
        if name == "docProps/core.xml"
            && let (Ok(xml), Some(rule)) = (std::str::from_utf8(&unpacked), &*OFFICE_DATES)
        {
            unpacked = rule.replace_all(xml, "$1$2").into_owned().into_bytes();
        }
        let digest = digest_of(&name, &unpacked, depth + 1);
        members.push((name, digest));
    }
    members.sort();
    Some(Digest::of_json(&members))
}

/// Digest of a PNG without its text and time chunks. `None` if it is invalid.
fn png_digest(mut chunks: &[u8]) -> Option<Digest> {
    let mut hasher = blake3::Hasher::new();
    while let [a, b, c, d, rest @ ..] = chunks {
        let length = usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).ok()?;
        let kind = rest.get(..4)?;
        let whole = rest.get(..length.checked_add(8)?)?;
        if ![b"tEXt", b"zTXt", b"iTXt", b"tIME"].contains(&kind.try_into().ok()?) {
            hasher.update(whole);
        }
        chunks = &rest[whole.len()..];
    }
    let hex = hasher.update(chunks).finalize().to_hex().to_string();
    Digest::try_from(hex).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use zip::write::SimpleFileOptions;

    use super::*;

    fn xlsx(created: &str, cell: &str) -> Vec<u8> {
        let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
        let members = [
            (
                "docProps/core.xml",
                format!(
                    "<cp><dcterms:created xsi:type=\"dcterms:W3CDTF\">{created}</dcterms:created></cp>"
                ),
            ),
            ("xl/sheet1.xml", format!("<c>{cell}</c>")),
        ];
        for (name, text) in members {
            writer
                .start_file(name, SimpleFileOptions::default())
                .unwrap();
            writer.write_all(text.as_bytes()).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    fn png(comment: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
        for (kind, content) in [(b"tEXt", comment.as_bytes()), (b"IDAT", data)] {
            bytes.extend((content.len() as u32).to_be_bytes());
            bytes.extend(kind);
            bytes.extend(content);
            bytes.extend([0; 4]);
        }
        bytes
    }

    #[test]
    fn creation_dates_and_random_ids_do_not_change_the_digest() {
        type Case = (&'static str, Vec<u8>, Vec<u8>, Vec<u8>);
        let pairs: [Case; 6] = [
            (
                "a.xlsx",
                xlsx("2024-01-01", "1"),
                xlsx("2025-02-02", "1"),
                xlsx("2024-01-01", "2"),
            ),
            (
                "a.png",
                png("made 1", b"x"),
                png("made 2", b"x"),
                png("made 1", b"y"),
            ),
            (
                "a.pdf",
                b"%PDF-1.4 /CreationDate (D:2024) /ID [<a><b>] x".to_vec(),
                b"%PDF-1.4 /CreationDate (D:2025) /ID [<c><d>] x".to_vec(),
                b"%PDF-1.4 /CreationDate (D:2024) /ID [<a><b>] y".to_vec(),
            ),
            (
                "a.svg",
                b"<dc:date>1</dc:date> m0123456789 x m0123456789".to_vec(),
                b"<dc:date>2</dc:date> mabcdef0123 x mabcdef0123".to_vec(),
                b"<dc:date>1</dc:date> m0123456789 x mabcdef0123".to_vec(),
            ),
            (
                "a.ipynb",
                br#"{"id": "0123abcd", "a": 1}"#.to_vec(),
                br#"{"id": "ffffabcd", "a": 1}"#.to_vec(),
                br#"{"id": "0123abcd", "a": 2}"#.to_vec(),
            ),
            (
                "a.gz",
                vec![0x1f, 0x8b, 8, 0, 1, 2, 3, 4, 9],
                vec![0x1f, 0x8b, 8, 0, 4, 3, 2, 1, 9],
                vec![0x1f, 0x8b, 8, 0, 1, 2, 3, 4, 8],
            ),
        ];
        for (name, first, rewritten, other) in pairs {
            assert_eq!(
                content_digest(name, &first),
                content_digest(name, &rewritten),
                "{name}"
            );
            assert_ne!(
                content_digest(name, &first),
                content_digest(name, &other),
                "{name}"
            );
        }
    }

    #[test]
    fn other_files_are_hashed_as_bytes() {
        let (a, b) = (b"a,b\n1,2\n", b"a,b\n1,3\n");
        assert_eq!(content_digest("a.csv", a), Digest::of_bytes(a));
        assert_ne!(content_digest("a.csv", a), content_digest("a.csv", b));
        assert_eq!(
            content_digest("a.bin", &[0xff, 0]),
            Digest::of_bytes(&[0xff, 0])
        );
    }

    #[test]
    fn fuzz_any_bytes_have_a_content_digest() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let starts: [&[u8]; 4] = [b"", b"PK\x03\x04", b"\x89PNG\r\n\x1a\n", b"%PDF"];
            for start in starts {
                let _ = content_digest("a.svg", &[start, bytes].concat());
            }
        });
    }
}
