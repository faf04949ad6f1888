//! A part of a file as a page shows it: rows of a table, text, the pages of a document, the waveform of a sound, or bytes.
//!
//! Files are hostile. The name says how a file is read, and one that cannot be read so is shown as text or bytes; nothing
//! in it is executed, pickles stay closed, and what is read is bounded in memory and time.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use pybench_files::sniff::{self, Sniffed, extension_kind};
use pybench_files::text;
use pybench_profile::{RowRange, TablePage, block_page, pdf_pages, table_page, waveform};
use pybench_types::task::FileKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Number of rows of a table, bytes of a text, and bytes of any other file on a page.
const ROWS: usize = 100;
const TEXT: usize = 32 << 10;
const BYTES: usize = 1 << 10;
/// Bytes of a line of a dump.
const LINE: usize = 16;
/// How a WebM file begins.
const EBML: [u8; 4] = [0x1a, 0x45, 0xdf, 0xa3];
/// Larger files are not read whole, bytes.
const MAX_WHOLE: u64 = 64 << 20;
/// Maximum length of the text of a page of a document, bytes.
const MAX_PAGE_TEXT: usize = 256 << 10;

/// How a part of a file is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FilePageKind {
    Table,
    Text,
    Html,
    Document,
    Sound,
    #[default]
    Bytes,
}

/// A part of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct FilePage {
    pub(crate) kind: FilePageKind,
    /// Size of the file, bytes.
    pub(crate) size: u64,
    /// Where the part begins: number of a row or page, or of a byte, from 0.
    pub(crate) from: u64,
    /// Where the next part begins.
    pub(crate) next: Option<u64>,
    /// Number of all rows, pages or bytes, if it is known.
    pub(crate) total: Option<u64>,
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<Option<String>>>,
    /// Sheets of a workbook that has several.
    pub(crate) sheets: Vec<String>,
    pub(crate) text: String,
    /// `None` if the server cannot decode it; the browser may.
    pub(crate) sound: Option<SoundView>,
    /// What is left out, or why the file is not shown as what its name says.
    pub(crate) note: String,
}

/// How loud a sound is over its time.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct SoundView {
    /// Peaks of equal parts, from 0 to 1.
    pub(crate) peaks: Vec<f32>,
    pub(crate) seconds: f64,
    /// Sample rate in Hz.
    pub(crate) rate: u32,
    pub(crate) channels: u32,
}

/// Which part of a file is asked for.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FilePageQuery {
    /// Name of the file, which says how it is read.
    pub(crate) name: String,
    /// Where the part begins: a row, a page, or a byte.
    pub(crate) from: u64,
    /// Number of the sheet, from 0.
    pub(crate) sheet: usize,
}

/// Reads a part of a file.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn read(mut file: File, query: &FilePageQuery) -> std::io::Result<FilePage> {
    let size = file.metadata()?.len();
    let extension = query.name.rsplit_once('.');
    let extension = extension.map_or("", |(_, extension)| extension);
    let shown = match file_kind(extension) {
        Some(kind) => of_kind(kind, file.try_clone()?, size, query),
        None if is_webm(extension) => webm(&mut file).map(Some),
        None => Ok(None),
    };
    let (page, note) = match shown {
        Ok(Some(page)) => (page, String::new()),
        Ok(None) => (text_or_bytes(&mut file, size, query.from)?, String::new()),
        Err(reason) => (text_or_bytes(&mut file, size, query.from)?, reason),
    };
    let note = if page.note.is_empty() {
        note
    } else {
        page.note
    };
    Ok(FilePage { size, note, ..page })
}

/// How a file with this extension is read. Opus is not among the types of input files.
fn file_kind(extension: &str) -> Option<FileKind> {
    match extension.eq_ignore_ascii_case("opus") {
        true => Some(FileKind::Ogg),
        false => extension_kind(extension),
    }
}

/// Whether a file with this extension is a WebM file, which is not among the types of input files either.
fn is_webm(extension: &str) -> bool {
    ["webm", "weba"]
        .iter()
        .any(|known| extension.eq_ignore_ascii_case(known))
}

/// A file as what its name says; `None` if that is a text or nothing that is shown.
fn of_kind(
    kind: FileKind,
    file: File,
    size: u64,
    query: &FilePageQuery,
) -> Result<Option<FilePage>, String> {
    use FileKind::*;
    let from = query.from;
    let page = match kind {
        Csv | Tsv | Xlsx | Jsonl | Parquet | Sqlite => table(kind, file, query)?,
        // An array of records is a table, other JSON is a text.
        Json => match table(kind, file, query) {
            Ok(page) => page,
            Err(_) => return Ok(None),
        },
        Pdf => document(pdf_pages(whole(file, size)?)?, from),
        Docx | Pptx => {
            let blocks = block_page(kind, whole(file, size)?)?;
            let lines: Vec<String> = blocks.into_iter().map(|block| block.text).collect();
            text_page(&lines.join("\n"), from)
        }
        Html => {
            let bytes = whole(file, size)?;
            let source = text_page(&text::decode(&bytes)?.text, from);
            FilePage {
                kind: FilePageKind::Html,
                ..source
            }
        }
        Wav | Mp3 | Flac | Ogg | Mp4 => sound(kind, file, size, &query.name)?,
        Txt | Md | Ipynb | Yaml | Xml | Log | Ini | Eml | Svg | Png | Jpeg | Gif | Webp | Bmp => {
            return Ok(None);
        }
    };
    Ok(Some(page))
}

fn table(kind: FileKind, file: File, query: &FilePageQuery) -> Result<FilePage, String> {
    let rows = RowRange {
        from: query.from,
        count: ROWS,
        sheet: query.sheet,
    };
    let TablePage {
        columns,
        rows,
        total,
        sheets,
        cut,
    } = table_page(kind, file, rows)?;
    let end = query.from.saturating_add(rows.len() as u64);
    let has_more = total.map_or(!rows.is_empty(), |total| end < total);
    let note = match cut {
        true => "Columns or long texts are cut.".to_owned(),
        false => String::new(),
    };
    Ok(FilePage {
        kind: FilePageKind::Table,
        from: query.from,
        next: has_more.then_some(end),
        total,
        columns,
        rows,
        sheets,
        note,
        ..FilePage::default()
    })
}

/// A page of a document.
fn document(pages: Vec<String>, from: u64) -> FilePage {
    let total = pages.len() as u64;
    let from = from.min(total.saturating_sub(1));
    let page = pages.into_iter().nth(usize::try_from(from).unwrap_or(0));
    let mut text = page.unwrap_or_default();
    text.truncate(boundary(&text, MAX_PAGE_TEXT));
    let note = match text.trim().is_empty() {
        true => "This page has no text that can be read.".to_owned(),
        false => String::new(),
    };
    FilePage {
        kind: FilePageKind::Document,
        from,
        next: (from + 1 < total).then_some(from + 1),
        total: Some(total),
        text,
        note,
        ..FilePage::default()
    }
}

/// The sound of a WebM file. Only browsers read it.
fn webm(file: &mut File) -> Result<FilePage, String> {
    let head = part(file, 0, EBML.len());
    let head = head.map_err(|error| format!("it cannot be read: {error}"))?;
    if head != EBML {
        return Err("not a WebM file".to_owned());
    }
    Ok(FilePage {
        kind: FilePageKind::Sound,
        note: "There is no waveform: only browsers read WebM".to_owned(),
        ..FilePage::default()
    })
}

/// The waveform of a sound. One that is too long, or of a codec that only browsers have, is shown without.
fn sound(kind: FileKind, mut file: File, size: u64, name: &str) -> Result<FilePage, String> {
    let head = part(&mut file, 0, sniff::HEAD);
    let head = head.map_err(|error| format!("it cannot be read: {error}"))?;
    let drawn = whole(file, size).and_then(|bytes| waveform(kind, bytes));
    let (sound, note) = match drawn {
        Ok(waveform) => {
            let view = SoundView {
                peaks: waveform.peaks,
                seconds: waveform.seconds,
                rate: waveform.rate,
                channels: waveform.channels,
            };
            (Some(view), String::new())
        }
        Err(reason) if sniff::sniff(name, &head) == Sniffed::File(kind) => {
            (None, format!("There is no waveform: {reason}"))
        }
        Err(reason) => return Err(reason),
    };
    Ok(FilePage {
        kind: FilePageKind::Sound,
        sound,
        note,
        ..FilePage::default()
    })
}

/// The file as text, if it is one, else its bytes.
fn text_or_bytes(file: &mut File, size: u64, from: u64) -> std::io::Result<FilePage> {
    if size <= MAX_WHOLE {
        let bytes = part(file, 0, MAX_WHOLE as usize)?;
        return Ok(match text::decode(&bytes) {
            Ok(decoded) => text_page(&decoded.text, from),
            Err(_) => {
                let from = from.min(size) as usize;
                let end = bytes.len().min(from.saturating_add(BYTES));
                dump(bytes.get(from..end).unwrap_or_default(), from as u64, size)
            }
        });
    }
    let head = part(file, 0, TEXT)?;
    if head.contains(&0) {
        return Ok(dump(&part(file, from, BYTES)?, from, size));
    }
    let mut bytes = part(file, from, TEXT)?;
    // The next part begins with the character that this one would cut.
    if let Err(error) = std::str::from_utf8(&bytes)
        && error.error_len().is_none()
        && error.valid_up_to() > 0
    {
        bytes.truncate(error.valid_up_to());
    }
    let next = from.saturating_add(bytes.len() as u64);
    Ok(FilePage {
        kind: FilePageKind::Text,
        from,
        next: (next < size && !bytes.is_empty()).then_some(next),
        total: Some(size),
        text: String::from_utf8_lossy(&bytes).into_owned(),
        ..FilePage::default()
    })
}

/// A part of a text; it ends with a line, if it has one.
fn text_page(text: &str, from: u64) -> FilePage {
    let from = boundary(text, usize::try_from(from).unwrap_or(usize::MAX));
    let end = boundary(text, from.saturating_add(TEXT));
    let line_end = match end < text.len() {
        true => text[from..end].rfind('\n').map(|at| from + at + 1),
        false => None,
    };
    let end = line_end.unwrap_or(end);
    FilePage {
        kind: FilePageKind::Text,
        from: from as u64,
        next: (end < text.len()).then_some(end as u64),
        total: Some(text.len() as u64),
        text: text[from..end].to_owned(),
        ..FilePage::default()
    }
}

/// The last boundary of a character that is not behind `at`.
fn boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Bytes as hexadecimal numbers and ASCII.
fn dump(bytes: &[u8], from: u64, size: u64) -> FilePage {
    let mut text = String::new();
    for (number, line) in bytes.chunks(LINE).enumerate() {
        let at = from + (number * LINE) as u64;
        let hex: String = line.iter().map(|byte| format!("{byte:02x} ")).collect();
        let plain = line.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        });
        let plain: String = plain.collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{at:08x}  {hex:<48} {plain}");
    }
    let next = from.saturating_add(bytes.len() as u64);
    FilePage {
        kind: FilePageKind::Bytes,
        from,
        next: (next < size && !bytes.is_empty()).then_some(next),
        total: Some(size),
        text,
        ..FilePage::default()
    }
}

/// The bytes of a file that is not too large.
fn whole(mut file: File, size: u64) -> Result<Vec<u8>, String> {
    if size > MAX_WHOLE {
        return Err("it is larger than 64 MiB".to_owned());
    }
    let bytes = part(&mut file, 0, MAX_WHOLE as usize);
    bytes.map_err(|error| format!("it cannot be read: {error}"))
}

fn part(file: &mut File, from: u64, length: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn page(name: &str, bytes: &[u8], from: u64) -> FilePage {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        let query = FilePageQuery {
            name: name.to_owned(),
            from,
            sheet: 0,
        };
        read(file, &query).unwrap()
    }

    #[test]
    fn tables_are_shown_by_pages_of_rows() {
        let text: String = (0..250).map(|row| format!("{row},x\n")).collect();
        let text = format!("n,t\n{text}");
        let first = page("output/a.csv", text.as_bytes(), 0);
        assert_eq!(first.kind, FilePageKind::Table);
        assert_eq!((first.total, first.next), (Some(250), Some(100)));
        assert_eq!(first.rows.len(), ROWS);
        let last = page("a.csv", text.as_bytes(), 200);
        assert_eq!((last.rows.len(), last.next), (50, None));
        assert_eq!(last.rows[0][0].as_deref(), Some("200"));
    }

    #[test]
    fn what_is_not_what_its_name_says_is_text_or_bytes() {
        let text = page("a.parquet", b"version https://example.org", 0);
        assert_eq!(text.kind, FilePageKind::Text);
        assert!(!text.note.is_empty());
        let object = page("a.json", b"{\"a\": 1}", 0);
        assert_eq!((object.kind, &*object.note), (FilePageKind::Text, ""));
        let pickle = page("a.pkl", b"\x80\x04\x95\0\0\0cos\nsystem", 0);
        assert_eq!(pickle.kind, FilePageKind::Bytes);
        let line = "00000000  80 04 95 00 00 00 63 6f 73 0a 73 79 73 74 65 6d  ......cos.system\n";
        assert_eq!(pickle.text, line);
        assert_eq!(page("a.csv", b"", 0).text, "");
        assert_eq!(page("a.wav", b"RIFF\0\0", 0).kind, FilePageKind::Bytes);
    }

    #[test]
    fn sounds_have_a_waveform_or_say_why_not() {
        let samples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/samples/files");
        for name in [
            "chirp.wav",
            "tune.mp3",
            "scale.flac",
            "bells.ogg",
            "tone.mp4",
        ] {
            let bytes = std::fs::read(format!("{samples}/{name}")).unwrap();
            let page = page(name, &bytes, 0);
            assert_eq!((page.kind, &*page.note), (FilePageKind::Sound, ""));
            let sound = page.sound.unwrap();
            let loudest = sound.peaks.iter().copied().fold(0.0, f32::max);
            assert!(loudest > 0.05 && sound.seconds > 0.5, "{name}: {sound:?}");
        }
        // A sound of another codec is left to the browser; what is none is a text.
        for name in ["a.ogg", "a.opus"] {
            let opus = page(name, b"OggS\0\x02\0\0\0\0\0\0\0\0OpusHead", 0);
            assert_eq!((opus.kind, opus.sound), (FilePageKind::Sound, None));
            assert!(opus.note.contains("no waveform"), "{}", opus.note);
        }
        let webm = page("a.WebM", b"\x1a\x45\xdf\xa3\x01", 0);
        assert_eq!((webm.kind, webm.sound), (FilePageKind::Sound, None));
        assert_eq!(page("a.webm", b"no", 0).note, "not a WebM file");
        let cut = page("a.m4a", b"\0\0\0\x18ftypisom\0\0\x02\0isommp41", 0);
        assert_eq!((cut.kind, cut.sound), (FilePageKind::Sound, None));
        for name in ["a.mp3", "a.flac", "a.ogg", "a.m4a"] {
            let text = page(name, b"not a sound", 0);
            assert_eq!(text.kind, FilePageKind::Text, "{name}");
            assert!(!text.note.is_empty());
        }
    }

    #[test]
    fn parts_of_a_text_make_up_all_of_it() {
        let text = "é\n".repeat(TEXT) + &"ü".repeat(TEXT);
        let (mut found, mut from) = (String::new(), Some(0));
        while let Some(at) = from {
            let part = page("a.txt", text.as_bytes(), at);
            assert!(part.text.len() <= TEXT);
            assert_eq!(part.from, at);
            found += &part.text;
            from = part.next;
        }
        assert!(found == text);
    }

    #[test]
    fn bytes_end_with_the_file() {
        let bytes = [0; BYTES + 1];
        let first = page("a.bin", &bytes, 0);
        assert_eq!(first.next, Some(BYTES as u64));
        let last = page("a.bin", &bytes, BYTES as u64);
        assert_eq!((last.next, last.text.lines().count()), (None, 1));
        assert_eq!(page("a.bin", &bytes, u64::MAX).text, "");
    }
}
