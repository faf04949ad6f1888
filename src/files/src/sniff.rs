//! Detects the type of a file: by its signature if the format has one, otherwise by its extension, confirmed
//! by the text.

use std::io::{Cursor, Read};

use pybench_types::task::FileKind;

use super::text;

/// The archive formats that are opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveKind {
    /// zip, including wheels.
    Zip,
    Tar,
    /// A gzip stream of a tar or of a single file.
    Gz,
}

/// The detected type of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sniffed {
    /// A type that tasks can use.
    File(FileKind),
    Archive(ArchiveKind),
    /// The extension names a type, but the content is neither of that type nor of another. The text is the
    /// reason.
    Broken(FileKind, String),
    /// Not a type that tasks can use. The text is the reason.
    Unknown(String),
}

/// Number of leading bytes that contain every signature; that of `tar` is the farthest.
pub const HEAD: usize = 1024;

/// The type that an extension (without the dot) stands for.
pub fn extension_kind(extension: &str) -> Option<FileKind> {
    use FileKind::*;
    Some(match extension.to_ascii_lowercase().as_str() {
        "csv" => Csv,
        "tsv" | "tab" => Tsv,
        "xlsx" => Xlsx,
        "json" => Json,
        "jsonl" | "ndjson" => Jsonl,
        "parquet" | "parq" => Parquet,
        "sqlite" | "sqlite3" | "db" | "db3" => Sqlite,
        "txt" | "text" => Txt,
        "md" | "markdown" => Md,
        "html" | "htm" => Html,
        "pdf" => Pdf,
        "docx" => Docx,
        "ipynb" => Ipynb,
        "yaml" | "yml" => Yaml,
        "xml" => Xml,
        "log" => Log,
        "ini" | "cfg" | "conf" => Ini,
        "eml" => Eml,
        "pptx" => Pptx,
        "png" | "apng" => Png,
        "jpg" | "jpeg" => Jpeg,
        "gif" => Gif,
        "webp" => Webp,
        "bmp" => Bmp,
        "svg" => Svg,
        "wav" => Wav,
        "mp3" => Mp3,
        "flac" => Flac,
        "ogg" | "oga" => Ogg,
        "mp4" | "m4a" | "m4v" => Mp4,
        _ => return None,
    })
}

/// The archive format of a file by its first [`HEAD`] bytes. A docx counts as a zip here.
pub fn archive_head(head: &[u8]) -> Option<ArchiveKind> {
    if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") {
        Some(ArchiveKind::Zip)
    } else if head.starts_with(b"\x1f\x8b") {
        Some(ArchiveKind::Gz)
    } else if head.get(257..262) == Some(b"ustar") {
        Some(ArchiveKind::Tar)
    } else {
        None
    }
}

/// Begins an OLE compound file.
const OLE: &[u8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1";

/// Detects the type of a whole file. Only the extension of `name` is used.
pub fn sniff(name: &str, bytes: &[u8]) -> Sniffed {
    if bytes.is_empty() {
        return Sniffed::Unknown("empty file".into());
    }
    let extension = name.rsplit_once('.').and_then(|(_, e)| extension_kind(e));
    match (by_signature(bytes), extension) {
        // A truncated zip has no directory that distinguishes an office package from an archive.
        (
            Some(Sniffed::Archive(ArchiveKind::Zip)),
            Some(kind @ (FileKind::Docx | FileKind::Xlsx | FileKind::Pptx)),
        ) => {
            return Sniffed::Broken(kind, "not a readable office package".into());
        }
        (Some(sniffed), _) => return sniffed,
        // Encrypted office packages are wrapped into the container of older formats.
        (None, Some(kind @ (FileKind::Docx | FileKind::Xlsx | FileKind::Pptx)))
            if bytes.starts_with(OLE) =>
        {
            return Sniffed::Broken(
                kind,
                "password-protected, or of an older Office format".into(),
            );
        }
        (None, _) => {}
    }
    if extension == Some(FileKind::Mp3) && mp3_frame(bytes) {
        return Sniffed::File(FileKind::Mp3);
    }
    by_text(extension, bytes)
}

fn by_signature(bytes: &[u8]) -> Option<Sniffed> {
    use FileKind::*;
    let at = |offset: usize, magic: &[u8]| bytes.get(offset..offset + magic.len()) == Some(magic);
    let kind = if at(0, b"\x89PNG\r\n\x1a\n") {
        Png
    } else if at(0, b"\xff\xd8\xff") {
        Jpeg
    } else if at(0, b"GIF87a") || at(0, b"GIF89a") {
        Gif
    } else if at(0, b"RIFF") && at(8, b"WEBP") {
        Webp
    } else if at(0, b"RIFF") && at(8, b"WAVE") {
        Wav
    } else if at(0, b"BM") && matches!(bytes.get(14), Some(12 | 40 | 52 | 56 | 64 | 108 | 124)) {
        Bmp
    } else if at(0, b"fLaC") {
        Flac
    } else if at(0, b"OggS") {
        Ogg
    } else if at(0, b"ID3") {
        return Some(after_id3(bytes));
    } else if at(4, b"ftyp") {
        return Some(iso_media(bytes));
    } else if at(0, b"PAR1") {
        Parquet
    } else if at(0, b"SQLite format 3\0") {
        Sqlite
    } else if bytes[..bytes.len().min(HEAD)]
        .windows(5)
        .any(|w| w == b"%PDF-")
    {
        Pdf
    } else {
        return other_signature(bytes);
    };
    Some(Sniffed::File(kind))
}

fn other_signature(bytes: &[u8]) -> Option<Sniffed> {
    match archive_head(bytes) {
        Some(ArchiveKind::Zip) => return Some(zip_kind(bytes)),
        Some(other) => return Some(Sniffed::Archive(other)),
        None => {}
    }
    let unopened: [&[u8]; 6] = [
        b"BZh",
        b"\xfd7zXZ\0",
        b"\x28\xb5\x2f\xfd",
        b"7z\xbc\xaf\x27\x1c",
        b"Rar!",
        b"\x7fELF",
    ];
    let hit = unopened.iter().any(|magic| bytes.starts_with(magic));
    hit.then(|| Sniffed::Unknown("an archive or program of a kind that is not opened".into()))
}

/// The type after an ID3 tag: usually mp3; some writers put the tag before flac by mistake.
fn after_id3(bytes: &[u8]) -> Sniffed {
    let size = bytes.get(6..10).unwrap_or_default();
    let size = size
        .iter()
        .fold(0usize, |n, b| n << 7 | usize::from(b & 0x7f));
    match bytes.get(10 + size..) {
        Some(rest) if rest.starts_with(b"fLaC") => Sniffed::File(FileKind::Flac),
        _ => Sniffed::File(FileKind::Mp3),
    }
}

fn iso_media(bytes: &[u8]) -> Sniffed {
    let brand = bytes.get(8..12).unwrap_or_default();
    let known: [&[u8]; 9] = [
        b"isom", b"iso2", b"iso4", b"iso5", b"iso6", b"mp41", b"mp42", b"avc1", b"dash",
    ];
    if known.contains(&brand) || brand.starts_with(b"M4") || brand.starts_with(b"3g") {
        Sniffed::File(FileKind::Mp4)
    } else {
        let brand = String::from_utf8_lossy(brand).escape_default().to_string();
        Sniffed::Unknown(format!("ISO media of brand `{brand}`, which is no mp4"))
    }
}

/// Whether the file begins with a frame of MPEG audio layer III.
fn mp3_frame(bytes: &[u8]) -> bool {
    let [a, b, c, ..] = bytes else { return false };
    *a == 0xff && b & 0xe6 == 0xe2 && c >> 4 != 0xf && c >> 2 & 3 != 3
}

/// Distinguishes docx, xlsx and pptx by their content types. Other office packages are not usable; any other zip is
/// an archive.
fn zip_kind(bytes: &[u8]) -> Sniffed {
    let Ok(mut archive) = zip::ZipArchive::new(Cursor::new(bytes)) else {
        return Sniffed::Archive(ArchiveKind::Zip); // refused with its reason when opened
    };
    let Ok(types) = archive.by_name("[Content_Types].xml") else {
        return Sniffed::Archive(ArchiveKind::Zip);
    };
    let mut text = Vec::new();
    if types.take(1 << 20).read_to_end(&mut text).is_err() {
        return Sniffed::Unknown("an office package whose content types cannot be read".into());
    }
    let text = String::from_utf8_lossy(&text);
    if text.contains("wordprocessingml.document.main+xml") {
        Sniffed::File(FileKind::Docx)
    } else if text.contains("spreadsheetml.sheet.main+xml") {
        Sniffed::File(FileKind::Xlsx)
    } else if text.contains("presentationml.presentation.main+xml") {
        Sniffed::File(FileKind::Pptx)
    } else {
        Sniffed::Unknown("an office package that is neither docx, xlsx nor pptx".into())
    }
}

/// Detects formats without a signature.
fn by_text(extension: Option<FileKind>, bytes: &[u8]) -> Sniffed {
    use FileKind::*;
    let Some(kind) = extension else {
        return Sniffed::Unknown("no known signature and no known extension".into());
    };
    let decoded = match text::decode(bytes) {
        Ok(decoded) => decoded,
        Err(reason) => return Sniffed::Broken(kind, reason),
    };
    let start = decoded.text.trim_start();
    Sniffed::File(match kind {
        _ if is_svg(start) => Svg,
        Svg => return Sniffed::Broken(Svg, "no <svg> element at the beginning".into()),
        _ if is_html(start) => Html,
        Json | Jsonl | Ipynb => json_kind(kind, start),
        Csv | Tsv | Txt | Md | Html | Yaml | Xml | Log | Ini | Eml => kind,
        // Text with the extension of a binary format, such as an error page or a pointer file.
        Xlsx | Parquet | Sqlite | Pdf | Docx | Pptx | Png | Jpeg | Gif | Webp | Bmp | Wav | Mp3
        | Flac | Ogg | Mp4 => match start.starts_with(['{', '[']) {
            true => json_kind(Txt, start),
            false => Txt,
        },
    })
}

fn is_svg(start: &str) -> bool {
    let head: String = start.chars().take(2_000).collect();
    let xml =
        head.starts_with("<?xml") || head.starts_with("<!--") || head.starts_with("<!DOCTYPE svg");
    head.starts_with("<svg") || (xml && head.contains("<svg"))
}

fn is_html(start: &str) -> bool {
    let head: String = start
        .chars()
        .take(200)
        .collect::<String>()
        .to_ascii_lowercase();
    head.starts_with("<!doctype html") || head.starts_with("<html")
}

/// Distinguishes json, jsonl and ipynb by content; returns `named` if the content is none of them.
fn json_kind(named: FileKind, text: &str) -> FileKind {
    if text.len() > crate::MAX_JSON {
        return named; // the profile says that it is too large
    }
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(value) if value.get("nbformat").is_some() && value.get("cells").is_some() => {
            FileKind::Ipynb
        }
        Ok(_) if named == FileKind::Jsonl => FileKind::Jsonl, // of a single line
        Ok(_) => FileKind::Json,
        Err(_) => {
            let mut lines = text.lines().filter(|l| !l.trim().is_empty()).peekable();
            let object = |line: &str| serde_json::from_str::<JsonObject>(line).is_ok();
            let all = lines.peek().is_some() && lines.all(object);
            if all { FileKind::Jsonl } else { named }
        }
    }
}

type JsonObject = serde_json::Map<String, serde_json::Value>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_takes_precedence_over_the_extension() {
        let cases: &[(&str, &[u8], Sniffed)] = &[
            ("a.csv", b"\x89PNG\r\n\x1a\n", Sniffed::File(FileKind::Png)),
            (
                "a.csv",
                b"<!DOCTYPE html><p>404",
                Sniffed::File(FileKind::Html),
            ),
            ("a.csv", b"x,y\n1,2\n", Sniffed::File(FileKind::Csv)),
            ("a.yml", b"a: 1\n", Sniffed::File(FileKind::Yaml)),
            (
                "a.xml",
                b"<?xml version='1.0'?><a/>",
                Sniffed::File(FileKind::Xml),
            ),
            ("a.xml", b"<svg/>", Sniffed::File(FileKind::Svg)),
            ("a.log", b"12:00 started\n", Sniffed::File(FileKind::Log)),
            ("a.cfg", b"[a]\nb=1\n", Sniffed::File(FileKind::Ini)),
            ("a.eml", b"Subject: x\n\ny\n", Sniffed::File(FileKind::Eml)),
            (
                "a.json",
                b"{\"a\":1}\n{\"a\":2}\n",
                Sniffed::File(FileKind::Jsonl),
            ),
            (
                "a.json",
                b"{\"nbformat\":4,\"cells\":[]}",
                Sniffed::File(FileKind::Ipynb),
            ),
            ("a.png", b"just words", Sniffed::File(FileKind::Txt)),
            (
                "a.svg",
                b"<?xml version='1.0'?><svg/>",
                Sniffed::File(FileKind::Svg),
            ),
            ("a.mp3", b"\xff\xfb\x90\x00", Sniffed::File(FileKind::Mp3)),
            ("a.gz", b"\x1f\x8b\x08", Sniffed::Archive(ArchiveKind::Gz)),
            (
                "a.pptx",
                b"PK\x03\x04broken",
                Sniffed::Broken(FileKind::Pptx, "not a readable office package".into()),
            ),
            (
                "a.zip",
                b"PK\x03\x04broken",
                Sniffed::Archive(ArchiveKind::Zip),
            ),
            (
                "a.docx",
                b"PK\x03\x04broken",
                Sniffed::Broken(FileKind::Docx, "not a readable office package".into()),
            ),
            (
                "a.xlsx",
                b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1EncryptedPackage",
                Sniffed::Broken(
                    FileKind::Xlsx,
                    "password-protected, or of an older Office format".into(),
                ),
            ),
        ];
        for (name, bytes, expected) in cases {
            assert_eq!(&sniff(name, bytes), expected, "{name}");
        }
    }

    #[test]
    fn unusable_files_have_a_reason() {
        assert!(matches!(sniff("a.csv", b""), Sniffed::Unknown(_)));
        assert!(matches!(sniff("a.exe", b"MZ\0\0"), Sniffed::Unknown(_)));
        assert!(matches!(
            sniff("a.png", b"\0\x01\x02\x03"),
            Sniffed::Broken(FileKind::Png, _)
        ));
        assert!(matches!(
            sniff("a.csv", &[0; 64]),
            Sniffed::Broken(FileKind::Csv, _)
        ));
        assert!(matches!(
            sniff("x", b"\0\0\0\x20ftypheic"),
            Sniffed::Unknown(_)
        ));
    }

    #[test]
    fn fuzz_sniff() {
        bolero::check!().for_each(|bytes: &[u8]| {
            for name in ["a.csv", "a.json", "a.png", "a.mp3", "a"] {
                let _ = sniff(name, bytes);
            }
        });
    }
}
