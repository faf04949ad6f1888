//! Finds secrets in files, also where they are packed, compressed, or not encoded as UTF-8. What is unpacked is bounded.

mod encoded;
mod parquet;
mod pdf;
mod sqlite;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Cursor};
use std::path::Path;
use std::thread;

use pybench_files::archive::{self, Bounds, Visitor};
use pybench_files::open_regular;
use pybench_files::sniff::{ArchiveKind, HEAD, Sniffed, archive_head, sniff};
use pybench_types::task::FileKind;
use serde::{Deserialize, Serialize};

use super::{Scrubber, SecretCounts, metadata};

/// Maximum size of all that is unpacked from a file, in bytes.
const MAX_UNPACKED_BYTES: usize = 256 << 20;
/// Maximum depth of files in files.
const MAX_DEPTH: usize = 4;
/// Highest ratio of unpacked to packed bytes that deflate reaches.
const MAX_RATIO: u64 = 1_032;
/// Stack size in bytes. Parsers recurse as deep as the file nests.
const STACK_SIZE: usize = 64 << 20;
/// Short texts are searched together, this many bytes at a time.
const BATCH_BYTES: usize = 1 << 20;
/// Separates texts that are searched together: neither part of a word nor white space.
const SEPARATOR: &str = "\n\0\n";
/// First bytes of formats whose content is not readable: bzip2, xz, zstd, 7z, RAR, LZ4, compress, and OLE, which
/// also holds encrypted office files.
const OPAQUE: [&[u8]; 8] = [
    b"BZh",
    b"\xfd7zXZ\0",
    b"\x28\xb5\x2f\xfd",
    b"7z\xbc\xaf\x27\x1c",
    b"Rar!",
    b"\x04\x22\x4d\x18",
    b"\x1f\x9d",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",
];
/// Character references that hide a secret from the rules.
const REFERENCES: [(&str, &str); 4] = [
    ("&#64;", "@"),
    ("&#x40;", "@"),
    ("&quot;", "\""),
    ("&amp;", "&"),
];

/// What a search of a file found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileScan {
    pub found: SecretCounts,
    /// Why a part of the file could not be searched.
    pub unsearched: Option<String>,
}

impl FileScan {
    /// Whether all of the file was searched, and nothing found.
    pub fn is_clean(&self) -> bool {
        self.found.total() == 0 && self.unsearched.is_none()
    }
}

impl fmt::Display for FileScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.unsearched {
            _ if self.found.total() > 0 => write!(f, "contains {}", self.found),
            Some(reason) => write!(f, "cannot be searched for secrets: {reason}"),
            None => f.write_str("contains no secrets"),
        }
    }
}

impl FileScan {
    fn unsearched(reason: String) -> Self {
        Self {
            unsearched: Some(reason),
            ..Self::default()
        }
    }
}

impl Scrubber {
    /// Find secrets in a file of any kind.
    pub fn file(&self, bytes: &[u8]) -> FileScan {
        let most = MAX_UNPACKED_BYTES.saturating_add(bytes.len());
        self.search(most, |scanner| scanner.search_file(bytes))
    }

    /// Find secrets in a shard: in all columns, also those that are no part of a [`Row`](crate::Row), and in its
    /// footer.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn shard(&self, path: &Path) -> io::Result<FileScan> {
        let file = open_regular(path)?;
        Ok(self.search(usize::MAX, |scanner| {
            if let Err(reason) = parquet::search_file(scanner, file) {
                scanner.refuse(reason);
            }
        }))
    }

    fn search(&self, most: usize, work: impl FnOnce(&mut FileScanner<'_>) + Send) -> FileScan {
        let search = || {
            let mut scanner = FileScanner::new(self, most);
            work(&mut scanner);
            scanner.finish()
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new()
                .name("scrub".to_owned())
                .stack_size(STACK_SIZE)
                .spawn_scoped(scope, search);
            match thread.map(|thread| thread.join()) {
                Ok(Ok(scan)) => scan,
                Ok(Err(_)) => FileScan::unsearched("its parser gave up on it".to_owned()),
                Err(error) => FileScan::unsearched(format!("no thread: {error}")),
            }
        })
    }
}

struct FileScanner<'a> {
    scrubber: &'a Scrubber,
    scan: FileScan,
    /// Short texts that have not been searched yet.
    waiting: String,
    /// How many more bytes may be searched.
    left: usize,
    depth: usize,
}

impl<'a> FileScanner<'a> {
    fn new(scrubber: &'a Scrubber, left: usize) -> Self {
        Self {
            scrubber,
            scan: FileScan::default(),
            waiting: String::new(),
            left,
            depth: 0,
        }
    }

    fn finish(mut self) -> FileScan {
        self.search_waiting();
        self.scan
    }

    fn search_file(&mut self, bytes: &[u8]) {
        self.bytes(bytes);
        if let Err(reason) = self.contents(bytes) {
            self.refuse(reason);
        }
    }

    /// Search a file that was found in another one.
    fn inner_file(&mut self, bytes: &[u8]) {
        if self.depth >= MAX_DEPTH {
            return self.refuse(format!("files nested deeper than {MAX_DEPTH}"));
        }
        self.depth += 1;
        self.search_file(bytes);
        self.depth -= 1;
    }

    /// Search what the bytes of a file do not show.
    fn contents(&mut self, bytes: &[u8]) -> Result<(), String> {
        if let Some(kind) = archive_head(bytes) {
            return self.archive(kind, bytes);
        }
        if bytes.is_empty() || is_text(bytes) {
            return Ok(());
        }
        // MP3 and text have no signature.
        let name = if self.depth == 0 { "file.mp3" } else { "" };
        match sniff(name, bytes) {
            Sniffed::Archive(kind) => self.archive(kind, bytes),
            Sniffed::File(FileKind::Parquet) => parquet::search(self, bytes),
            Sniffed::File(FileKind::Sqlite) => sqlite::search(self, bytes),
            Sniffed::File(FileKind::Pdf) => pdf::search(self, bytes),
            Sniffed::File(FileKind::Png | FileKind::Jpeg | FileKind::Gif | FileKind::Webp) => {
                metadata(bytes).iter().for_each(|text| self.text(text));
                Ok(())
            }
            Sniffed::File(_) => Ok(()),
            // Office packages have parts of many kinds; their bytes were searched.
            Sniffed::Unknown(_) | Sniffed::Broken(..) if self.depth > 0 => {
                match OPAQUE.iter().any(|start| bytes.starts_with(start)) {
                    true => Err("it contains an archive of a kind that is not opened".to_owned()),
                    false => Ok(()),
                }
            }
            Sniffed::Unknown(reason) | Sniffed::Broken(_, reason) => Err(reason),
        }
    }

    fn archive(&mut self, kind: ArchiveKind, bytes: &[u8]) -> Result<(), String> {
        let left = self.left as u64;
        let bounds = Bounds {
            ratio: MAX_RATIO,
            ..Bounds::new(left, left)
        };
        let size = bytes.len() as u64;
        archive::open(kind, "archive", Cursor::new(bytes), size, bounds, self);
        Ok(())
    }

    fn refuse(&mut self, reason: impl Into<String>) {
        self.scan.unsearched.get_or_insert(reason.into());
    }

    /// Search bytes in the encodings that they may have.
    fn bytes(&mut self, bytes: &[u8]) {
        if !self.take(bytes.len()) {
            return;
        }
        for text in encoded::texts(bytes) {
            self.search(&text);
        }
        if let Ok(text) = str::from_utf8(bytes)
            && text
                .trim_start_matches(['\u{feff}', ' ', '\n'])
                .starts_with('<')
        {
            self.search(&without_markup(text));
        }
    }

    fn text(&mut self, text: &str) {
        if self.take(text.len()) {
            self.search(text);
        }
    }

    /// Count bytes that are to be searched; false if they are too many.
    fn take(&mut self, bytes: usize) -> bool {
        let left = self.left.checked_sub(bytes);
        self.left = left.unwrap_or(0);
        if left.is_none() {
            self.refuse(format!(
                "unpacks to more than {} MiB",
                MAX_UNPACKED_BYTES >> 20
            ));
        }
        left.is_some()
    }

    fn search(&mut self, text: &str) {
        if text.len() >= BATCH_BYTES {
            return self.scan.found.merge(&self.scrubber.text(text).found);
        }
        self.waiting += text;
        self.waiting += SEPARATOR;
        if self.waiting.len() >= BATCH_BYTES {
            self.search_waiting();
        }
    }

    fn search_waiting(&mut self) {
        let found = self.scrubber.text(&self.waiting).found;
        self.scan.found.merge(&found);
        self.waiting.clear();
    }
}

impl Visitor for FileScanner<'_> {
    fn wants(&self, _: &str) -> bool {
        true
    }

    fn file(&mut self, path: &str, bytes: Vec<u8>) {
        self.text(path);
        self.inner_file(&bytes);
    }

    fn refused(&mut self, _: &str, reason: String) {
        self.refuse(reason);
    }
}

/// Whether the bytes are UTF-8 text; a PDF can be.
fn is_text(bytes: &[u8]) -> bool {
    let mut head = bytes[..bytes.len().min(HEAD)].windows(5);
    str::from_utf8(bytes).is_ok() && !bytes.contains(&0) && !head.any(|part| part == b"%PDF-")
}

/// The text of XML or HTML. Tags can divide a word: office programs begin a new element within one.
fn without_markup(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, tag)) = rest.split_once('<') {
        plain += before;
        rest = tag.split_once('>').map_or("", |(_, after)| after);
    }
    plain += rest;
    for (reference, character) in REFERENCES {
        plain = plain.replace(reference, character);
    }
    plain
}
