//! Profiles files by type. An unreadable file gets [`Profile::Broken`] with the reason; a parser panic never
//! ends the process.

mod audio;
mod document;
mod image;
mod pictures;
pub mod preview;
mod table;

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Once};
use std::time::Duration;

use ::image::DynamicImage;
use polars::prelude::DataFrame;
use pybench_datasets::decontaminate::Table;
use pybench_types::id::Digest;
use pybench_types::task::{ColumnKind, FileKind, Profile, SourceFile};

pub use audio::Waveform;
pub use document::{Block, Cells};
pub use pictures::PictureIndex;
pub use table::page::{MAX_PAGE_ROWS, RowRange, TablePage};

/// A file that takes longer to profile counts as broken.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// A person does not wait longer for a page of a file.
const PAGE_TIME_LIMIT: Duration = Duration::from_secs(20);

/// Maximum number of parsers for pages that run, those that took too long included.
const MAX_PAGE_PARSERS: usize = 8;

/// Number of parsers for pages that run.
static PAGE_PARSERS: AtomicUsize = AtomicUsize::new(0);

/// Stack size in bytes. Some parsers recurse as deep as the document nests.
const STACK_SIZE: usize = 64 << 20;

/// Name of the profiling threads.
const THREAD_NAME: &str = "profile";

/// Profiles a whole file of a known type.
pub fn profile(kind: FileKind, bytes: &[u8]) -> Profile {
    use FileKind::*;
    let profiled = catch_unwind(AssertUnwindSafe(|| match kind {
        Csv | Tsv | Xlsx | Jsonl | Parquet | Sqlite => {
            table::profile(kind, bytes).map(Profile::Table)
        }
        Json => json(bytes),
        Txt | Md | Html | Pdf | Docx | Ipynb | Yaml | Xml | Log | Ini | Eml | Pptx | Svg => {
            document::profile(kind, bytes).map(Profile::Document)
        }
        Png | Jpeg | Gif | Webp | Bmp => image::profile(kind, bytes).map(Profile::Image),
        Wav | Mp3 | Flac | Ogg | Mp4 => audio::profile(kind, bytes).map(Profile::Audio),
    }));
    match profiled {
        Ok(Ok(profile)) => profile,
        Ok(Err(reason)) => Profile::Broken { reason },
        Err(_) => Profile::Broken {
            reason: "its parser gave up on it".into(),
        },
    }
}

/// A file of this machine that was not crawled: its origin is its name, and it has neither a license nor a time.
pub fn source_file(name: &str, kind: FileKind, bytes: &[u8]) -> SourceFile {
    SourceFile {
        id: Digest::of_bytes(bytes),
        name: name.to_owned(),
        size: bytes.len() as u64,
        kind,
        origin: name.to_owned(),
        license: None,
        fetched: String::new(),
        profile: profile(kind, bytes),
    }
}

/// The content of a table file, for comparison with other tables; `None` for any other file.
pub fn content(kind: FileKind, bytes: &[u8]) -> Option<Table> {
    let bytes = bytes.to_vec();
    parsed(move || table::content(kind, &bytes))
}

/// The columns of a table file as pandas reads them, and their kinds; `None` for any other file. Values of the kind
/// `other` are texts of no use.
pub fn frame(kind: FileKind, bytes: &[u8]) -> Option<(DataFrame, Vec<ColumnKind>)> {
    let bytes = bytes.to_vec();
    parsed(move || table::frame(kind, &bytes).ok())
}

/// The paragraphs and headings of a docx, html or pptx file outside of its tables, or the lines of each page of a pdf;
/// `None` for any other file.
pub fn blocks(kind: FileKind, bytes: &[u8]) -> Option<Vec<Block>> {
    let bytes = bytes.to_vec();
    parsed(move || document::blocks(kind, &bytes).ok())
}

/// The cells of the tables of a docx or html file, in their order; none if tools disagree on one of them, or of any other
/// file.
pub fn document_tables(kind: FileKind, bytes: &[u8]) -> Vec<Cells> {
    let bytes = bytes.to_vec();
    parsed(move || document::tables(kind, &bytes).ok()).unwrap_or_default()
}

/// Whether common tools find the same [`blocks`] in a file, which holds for a docx file of plain paragraphs.
pub fn has_plain_blocks(kind: FileKind, bytes: &[u8]) -> bool {
    let bytes = bytes.to_vec();
    parsed(move || document::is_plain(kind, &bytes).then_some(())).is_some()
}

/// The first frame of a picture file; `None` for any other file.
pub fn picture(kind: FileKind, bytes: &[u8]) -> Option<DynamicImage> {
    let bytes = bytes.to_vec();
    parsed(move || image::decode(kind, &bytes).ok())
}

/// The samples of a sound file, those of all channels side by side and full scale being 1, their rate in Hz, and the
/// number of channels; `None` for any other file.
pub fn sound(kind: FileKind, bytes: &[u8]) -> Option<(Vec<f32>, u32, u32)> {
    let bytes = bytes.to_vec();
    parsed(move || audio::samples(kind, &bytes).ok())
}

/// Rows of a table file, for people to look at. The file may be larger than the memory.
///
/// # Errors
/// The reason why the rows cannot be shown.
pub fn table_page(kind: FileKind, file: File, rows: RowRange) -> Result<TablePage, String> {
    within_time(move || table::page::read(kind, file, rows))
}

/// The text of each page of a pdf file; empty for pages whose text cannot be read.
///
/// # Errors
/// The reason why it cannot be read.
pub fn pdf_pages(bytes: Vec<u8>) -> Result<Vec<String>, String> {
    within_time(move || document::pdf_pages(&bytes))
}

/// As [`blocks`], for people to look at.
///
/// # Errors
/// The reason why it cannot be read.
pub fn block_page(kind: FileKind, bytes: Vec<u8>) -> Result<Vec<Block>, String> {
    within_time(move || document::blocks(kind, &bytes))
}

/// How loud a sound file is over its time.
///
/// # Errors
/// The reason why it cannot be read.
pub fn waveform(kind: FileKind, bytes: Vec<u8>) -> Result<Waveform, String> {
    within_time(move || audio::waveform(kind, &bytes))
}

/// A parser that runs.
struct PageParser;

impl PageParser {
    /// `None` if as many run as can be.
    fn begin() -> Option<Self> {
        let before = PAGE_PARSERS.fetch_add(1, Ordering::Relaxed);
        // One that is refused is dropped here, and does not count any more.
        let parser = Self;
        (before < MAX_PAGE_PARSERS).then_some(parser)
    }
}

impl Drop for PageParser {
    fn drop(&mut self) {
        PAGE_PARSERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs a parser in a thread of its own. One that takes too long keeps its thread until it ends.
fn within_time<T: Send + 'static>(
    parse: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    silence_panics();
    let parser = PageParser::begin().ok_or("other files are still being read; try again later")?;
    let (sender, receiver) = channel();
    let work = move || {
        let _parser = parser;
        // The receiver is closed once the time limit has passed.
        let _ = sender.send(parse());
    };
    let thread = std::thread::Builder::new()
        .name(THREAD_NAME.into())
        .stack_size(STACK_SIZE);
    let spawned = thread.spawn(work);
    spawned.map_err(|error| format!("no thread to read it: {error}"))?;
    match receiver.recv_timeout(PAGE_TIME_LIMIT) {
        Ok(read) => read,
        Err(RecvTimeoutError::Disconnected) => Err("its parser gave up on it".to_owned()),
        Err(RecvTimeoutError::Timeout) => {
            let seconds = PAGE_TIME_LIMIT.as_secs();
            Err(format!("took longer than {seconds} s to read"))
        }
    }
}

/// Runs a parser in a thread of its own; `None` if it panics.
fn parsed<T: Send + 'static>(parse: impl FnOnce() -> Option<T> + Send + 'static) -> Option<T> {
    silence_panics();
    let thread = std::thread::Builder::new()
        .name(THREAD_NAME.into())
        .stack_size(STACK_SIZE);
    thread.spawn(parse).ok()?.join().ok()?
}

/// Profiles JSON: an array of flat objects is a table, any other shape a document.
fn json(bytes: &[u8]) -> Result<Profile, String> {
    match table::json_records(bytes)? {
        Some(table) => Ok(Profile::Table(table)),
        None => document::profile(FileKind::Json, bytes).map(Profile::Document),
    }
}

/// Silences panic messages of profiling threads. Parser panics are caught and reported as broken files, and a
/// backtrace on stderr would look like a crash.
fn silence_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() != Some(THREAD_NAME) {
                default(info);
            }
        }));
    });
}

/// Profiles a file in a separate thread with a time limit. A thread cannot be canceled, so a parser that hangs
/// keeps its thread until the process ends.
pub async fn profile_bounded(kind: FileKind, bytes: Arc<Vec<u8>>) -> Profile {
    silence_panics();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let work = move || {
        // The receiver is closed once the time limit has passed.
        let _ = sender.send(profile(kind, &bytes));
    };
    let thread = std::thread::Builder::new()
        .name(THREAD_NAME.into())
        .stack_size(STACK_SIZE);
    if let Err(error) = thread.spawn(work) {
        return Profile::Broken {
            reason: format!("no thread to profile it: {error}"),
        };
    }
    match tokio::time::timeout(TIME_LIMIT, receiver).await {
        Ok(Ok(profile)) => profile,
        Ok(Err(_)) => Profile::Broken {
            reason: "its parser gave up on it".into(),
        },
        Err(_) => {
            let seconds = TIME_LIMIT.as_secs();
            Profile::Broken {
                reason: format!("took longer than {seconds} s to read"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_every_profiler() {
        bolero::check!().for_each(|bytes: &[u8]| {
            for kind in FileKind::ALL {
                let _ = profile(kind, bytes);
            }
        });
    }

    /// Bytes after a valid signature reach further into each parser than random bytes do.
    #[test]
    fn fuzz_after_the_signature() {
        let starts: [(FileKind, &[u8]); 12] = [
            (FileKind::Png, b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
            (FileKind::Gif, b"GIF89a"),
            (FileKind::Webp, b"RIFF\x40\0\0\0WEBPVP8 "),
            (FileKind::Bmp, b"BM\x40\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0"),
            (FileKind::Wav, b"RIFF\x40\0\0\0WAVEfmt \x10\0\0\0"),
            (FileKind::Flac, b"fLaC\0\0\0\x22"),
            (FileKind::Ogg, b"OggS\0\x02"),
            (FileKind::Mp4, b"\0\0\0\x18ftypisom"),
            (FileKind::Pdf, b"%PDF-1.4\n1 0 obj\n"),
            (FileKind::Parquet, b"PAR1"),
            (FileKind::Sqlite, b"SQLite format 3\0"),
            (FileKind::Json, b"[{\"a\":"),
        ];
        bolero::check!().for_each(|bytes: &[u8]| {
            for (kind, start) in starts {
                let _ = profile(kind, &[start, bytes].concat());
            }
        });
    }
}
