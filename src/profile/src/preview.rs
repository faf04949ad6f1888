//! Previews of an agent's output files for reports and judges. The files are untrusted: reads are bounded,
//! images are re-encoded, HTML is shown in a sandboxed frame, and pickles are never opened.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use image::{ImageFormat, ImageReader, Limits};
use pybench_types::id::Digest;
use pybench_types::task::{FileKind, Profile};
use pybench_types::trajectory::OutputFile;
use serde::Serialize;

use crate::profile;
use pybench_types::text;

/// Maximum number of bytes shown of a text, table or HTML page.
const MAX_TEXT: u64 = 16 << 10;
/// Largest image file in bytes, and maximum number of pixels that are decoded.
const MAX_IMAGE: u64 = 32 << 20;
const MAX_PIXELS: u64 = 40_000_000;
/// Longer side of an image in the report, in pixels.
const MAX_SIDE: u32 = 1_024;
/// Largest audio file that is copied, in bytes.
const MAX_AUDIO: u64 = 16 << 20;
/// Largest document that is profiled, in bytes.
const MAX_DOCUMENT: u64 = 16 << 20;
/// Limits of a table: rows, columns, and characters per cell.
const MAX_ROWS: usize = 20;
const MAX_COLUMNS: usize = 12;
const MAX_CELL: usize = 80;

/// The preview of a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "as", rename_all = "snake_case")]
pub enum Shown {
    /// An image, re-encoded into `files/`.
    Image { src: String, note: String },
    /// An audio file, copied into `files/`.
    Audio { src: String },
    /// The first rows of a table.
    Table {
        columns: Vec<String>,
        rows: Vec<Vec<String>>,
        note: String,
    },
    /// The first characters of a text.
    Text { text: String, note: String },
    /// An HTML page for a sandboxed frame.
    Html { source: String, note: String },
    /// No preview.
    Nothing { reason: String },
}

/// Reads files from content stores and caches their previews.
pub struct Store<'a> {
    /// Folders laid out like `pybench_run::ContentStore`, searched in order.
    roots: &'a [PathBuf],
    /// Folder for copied and re-encoded files.
    files: PathBuf,
    /// Previews by digest and extension.
    shown: BTreeMap<(Digest, String), Shown>,
}

impl<'a> Store<'a> {
    pub fn new(roots: &'a [PathBuf], files: PathBuf) -> Self {
        Self {
            roots,
            files,
            shown: BTreeMap::new(),
        }
    }

    /// Reads the first `limit` bytes of a stored file. Accepts only regular files and follows no links.
    fn head(&self, id: &Digest, limit: u64) -> Result<Vec<u8>, String> {
        let path_in = |root: &PathBuf| root.join(&id.as_str()[..2]).join(id.as_str());
        let mut paths = self.roots.iter().map(path_in);
        let found = paths.find_map(|path| Some((fs::symlink_metadata(&path).ok()?, path)));
        let (metadata, path) = found.ok_or("it is not in the content store")?;
        if !metadata.is_file() {
            return Err("it is no regular file".to_owned());
        }
        let read = |path: &Path| {
            let mut bytes = Vec::new();
            File::open(path)?.take(limit).read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>(bytes)
        };
        read(&path).map_err(|error| format!("it could not be read: {error}"))
    }

    /// Reads a whole stored file of at most `limit` bytes and verifies its digest.
    ///
    /// # Errors
    /// The reason, as a report shows it.
    pub fn read_verified(&self, file: &OutputFile, limit: u64) -> Result<Vec<u8>, String> {
        if file.size > limit {
            return Err(format!("{} are too large to show", text::size(file.size)));
        }
        let bytes = self.head(&file.id, limit + 1)?;
        match bytes.len() as u64 <= limit && Digest::of_bytes(&bytes) == file.id {
            true => Ok(bytes),
            false => Err("the content store holds other bytes under its name".to_owned()),
        }
    }

    /// The preview of a file, chosen by its extension.
    pub fn show(&mut self, file: &OutputFile) -> Shown {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        let extension = name.rsplit_once('.').map_or("", |(_, e)| e).to_lowercase();
        let key = (file.id.clone(), extension);
        if let Some(shown) = self.shown.get(&key) {
            return shown.clone();
        }
        let shown = self.preview(file, &key.1);
        let shown = shown.unwrap_or_else(|reason| Shown::Nothing { reason });
        self.shown.insert(key, shown.clone());
        shown
    }

    fn preview(&self, file: &OutputFile, extension: &str) -> Result<Shown, String> {
        match extension {
            "png" | "jpg" | "jpeg" | "gif" | "webp" | "bmp" => self.picture(file),
            "wav" | "mp3" | "flac" | "ogg" => self.sound(file),
            "csv" | "tsv" => self.separated(file, if extension == "tsv" { '\t' } else { ',' }),
            "html" | "htm" => self.page(file),
            "xlsx" => self.document(file, FileKind::Xlsx),
            "parquet" => self.document(file, FileKind::Parquet),
            "db" | "sqlite" => self.document(file, FileKind::Sqlite),
            "pdf" => self.document(file, FileKind::Pdf),
            "docx" => self.document(file, FileKind::Docx),
            "pkl" | "pickle" | "joblib" | "pt" | "npy" | "npz" => {
                Err("what unpickles may run anything: not opened here".to_owned())
            }
            _ => self.text(file),
        }
    }

    fn picture(&self, file: &OutputFile) -> Result<Shown, String> {
        let (png, width, height) = self.redrawn(file)?;
        Ok(Shown::Image {
            src: self.copy(&file.id, "png", &png)?,
            note: format!("{width} × {height} pixels"),
        })
    }

    /// Decodes an image within limits, scales it down and encodes it as PNG. Also returns the original width
    /// and height in pixels.
    ///
    /// # Errors
    /// The reason, as a report shows it.
    pub fn redrawn(&self, file: &OutputFile) -> Result<(Vec<u8>, u32, u32), String> {
        let bytes = self.read_verified(file, MAX_IMAGE)?;
        let reader = || ImageReader::new(Cursor::new(&bytes)).with_guessed_format();
        let unreadable =
            |error: &dyn std::fmt::Display| format!("no picture that can be read: {error}");
        let (width, height) = reader()
            .map_err(|e| unreadable(&e))?
            .into_dimensions()
            .map_err(|e| unreadable(&e))?;
        if u64::from(width) * u64::from(height) > MAX_PIXELS {
            return Err(format!("{width} × {height} pixels are too many to show"));
        }
        let mut limits = Limits::default();
        limits.max_alloc = Some(512 << 20);
        let mut reader = reader().map_err(|e| unreadable(&e))?;
        reader.limits(limits);
        let mut picture = reader.decode().map_err(|e| unreadable(&e))?;
        if width.max(height) > MAX_SIDE {
            picture = picture.thumbnail(MAX_SIDE, MAX_SIDE);
        }
        let mut png = Vec::new();
        (picture.into_rgba8())
            .write_to(&mut Cursor::new(&mut png), ImageFormat::Png)
            .map_err(|e| unreadable(&e))?;
        Ok((png, width, height))
    }

    fn sound(&self, file: &OutputFile) -> Result<Shown, String> {
        let bytes = self.read_verified(file, MAX_AUDIO)?;
        let extension = match &bytes[..] {
            [b'R', b'I', b'F', b'F', ..] => "wav",
            [b'f', b'L', b'a', b'C', ..] => "flac",
            [b'O', b'g', b'g', b'S', ..] => "ogg",
            [b'I', b'D', b'3', ..] | [0xff, 0xe0..=0xff, ..] => "mp3",
            _ => return Err("no sound: it does not begin as one".to_owned()),
        };
        Ok(Shown::Audio {
            src: self.copy(&file.id, extension, &bytes)?,
        })
    }

    fn copy(&self, id: &Digest, extension: &str, bytes: &[u8]) -> Result<String, String> {
        let name = format!("{}.{extension}", &id.as_str()[..32]);
        fs::write(self.files.join(&name), bytes).map_err(|error| error.to_string())?;
        Ok(format!("files/{name}"))
    }

    /// The beginning of a file as text, and whether the file continues.
    fn beginning(&self, file: &OutputFile) -> Result<(String, bool), String> {
        let mut bytes = match file.size > MAX_DOCUMENT {
            true => self.head(&file.id, MAX_TEXT)?,
            false => self.read_verified(file, MAX_DOCUMENT)?,
        };
        bytes.truncate(MAX_TEXT as usize);
        let more = file.size > bytes.len() as u64;
        let end = match std::str::from_utf8(&bytes) {
            // The cut split a character.
            Err(error) if more && bytes.len() - error.valid_up_to() < 4 => error.valid_up_to(),
            _ => bytes.len(),
        };
        Ok((String::from_utf8_lossy(&bytes[..end]).into_owned(), more))
    }

    fn separated(&self, file: &OutputFile, separator: char) -> Result<Shown, String> {
        let (start, more) = self.beginning(file)?;
        let mut records = records(&start, separator, MAX_ROWS + 2);
        let cut = more || records.len() > MAX_ROWS + 1;
        records.truncate(MAX_ROWS + 1);
        let wide = records.iter().map(Vec::len).max().unwrap_or(0);
        let mut rows = records
            .into_iter()
            .map(|row| row.iter().take(MAX_COLUMNS).map(|c| cell(c)).collect());
        let columns = rows.next().ok_or("an empty file")?;
        let note = match (cut, wide > MAX_COLUMNS) {
            (true, true) => format!("the first rows; {MAX_COLUMNS} of {wide} columns"),
            (true, false) => "the first rows".to_owned(),
            (false, true) => format!("{MAX_COLUMNS} of {wide} columns"),
            (false, false) => String::new(),
        };
        Ok(Shown::Table {
            columns,
            rows: rows.collect(),
            note,
        })
    }

    fn page(&self, file: &OutputFile) -> Result<Shown, String> {
        let (source, more) = self.beginning(file)?;
        Ok(Shown::Html {
            source,
            note: note(more),
        })
    }

    fn text(&self, file: &OutputFile) -> Result<Shown, String> {
        let (start, more) = self.beginning(file)?;
        // A few invalid characters are tolerated; a file with many is not text.
        let broken = start
            .chars()
            .filter(|c| matches!(c, '\u{fffd}' | '\u{0}'))
            .count();
        if broken * 20 > start.chars().count() {
            return Err("neither text nor another type that is shown".to_owned());
        }
        Ok(Shown::Text {
            text: start,
            note: note(more),
        })
    }

    /// Shows a document by its profile, whose readers are bounded.
    fn document(&self, file: &OutputFile, kind: FileKind) -> Result<Shown, String> {
        let bytes = self.read_verified(file, MAX_DOCUMENT)?;
        match profile(kind, &bytes) {
            Profile::Table(table) => Ok(Shown::Table {
                columns: table
                    .columns
                    .iter()
                    .take(MAX_COLUMNS)
                    .map(|c| cell(&c.name))
                    .collect(),
                rows: (table.sample.iter())
                    .map(|row| {
                        row.iter()
                            .take(MAX_COLUMNS)
                            .map(|c| cell(c.as_deref().unwrap_or("")))
                            .collect()
                    })
                    .collect(),
                note: format!("{} rows, {} columns", table.rows, table.columns.len()),
            }),
            Profile::Document(document) => Ok(Shown::Text {
                note: format!("{} words; the beginning of its text", document.words),
                text: document.excerpt,
            }),
            Profile::Broken { reason } => Err(reason),
            Profile::Image(_) | Profile::Audio(_) => Err("another type than it says".to_owned()),
        }
    }
}

fn note(more: bool) -> String {
    match more {
        true => format!("the first {}", text::size(MAX_TEXT)),
        false => String::new(),
    }
}

fn cell(text: &str) -> String {
    pybench_types::text::cut(&text::line(text), MAX_CELL)
}

/// The first `limit` records of separated values (RFC 4180).
pub fn records(text: &str, separator: char, limit: usize) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' if quoted || field.is_empty() => quoted = !quoted,
            c if c == separator && !quoted => row.push(std::mem::take(&mut field)),
            '\r' if !quoted && chars.peek() == Some(&'\n') => {}
            '\n' if !quoted => {
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
                if rows.len() == limit {
                    return rows;
                }
            }
            c => field.push(c),
        }
    }
    if !field.is_empty() || !row.is_empty() {
        row.push(field);
        rows.push(row);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separated_values_are_split_by_rfc_4180() {
        let text = "a,\"b,\"\"x\"\"\n2\",c\r\n1,,3\n";
        assert_eq!(
            records(text, ',', 9),
            [vec!["a", "b,\"x\"\n2", "c"], vec!["1", "", "3"]]
        );
        assert_eq!(records("a\nb\nc", ',', 2).len(), 2);
        assert!(records("", ',', 2).is_empty());
    }

    #[test]
    fn fuzz_separated_values_never_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            assert!(records(&String::from_utf8_lossy(bytes), ',', 5).len() <= 5);
        });
    }
}
