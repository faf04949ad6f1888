//! A profile per type. What cannot be read gets [`Profile::Broken`] with the reason, never a crash.

mod audio;
mod document;
mod image;
mod table;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Once};
use std::time::Duration;

use pybench::task::{FileKind, Profile};
use pybench_datasets::decontaminate::Table;

/// JSON larger than this is not parsed: a tree takes up to twenty times the space of its text.
pub(crate) const MAX_JSON: usize = 8 << 20;

/// A file whose profile takes longer is broken.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Some parsers recurse with the depth of the document.
const STACK: usize = 64 << 20;

/// Name of the threads that profile.
const THREAD: &str = "profile";

/// Profile a whole file of a known type.
pub fn profile(kind: FileKind, bytes: &[u8]) -> Profile {
    use FileKind::*;
    let profiled = catch_unwind(AssertUnwindSafe(|| match kind {
        Csv | Tsv | Xlsx | Jsonl | Parquet | Sqlite => {
            table::profile(kind, bytes).map(Profile::Table)
        }
        Json => json(bytes),
        Txt | Md | Html | Pdf | Docx | Ipynb | Svg => {
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

/// What is in a file that is a table, for comparing it with others; `None` for any other file.
pub(crate) fn content(kind: FileKind, bytes: &[u8]) -> Option<Table> {
    silence_panics();
    let bytes = bytes.to_vec();
    let thread = std::thread::Builder::new()
        .name(THREAD.into())
        .stack_size(STACK);
    let read = move || catch_unwind(AssertUnwindSafe(|| table::content(kind, &bytes)));
    // A parser that gives up has found no table.
    thread.spawn(read).ok()?.join().ok()?.ok()?
}

/// An array of flat objects is a table, any other shape a document.
fn json(bytes: &[u8]) -> Result<Profile, String> {
    match table::json_records(bytes)? {
        Some(table) => Ok(Profile::Table(table)),
        None => document::profile(FileKind::Json, bytes).map(Profile::Document),
    }
}

/// A parser that panics over a broken file is caught and reported as such: its backtrace on stderr
/// would only look like a crash of ours.
fn silence_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let default = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() != Some(THREAD) {
                default(info);
            }
        }));
    });
}

/// Profile in a thread of its own, within bounded time. A parser that hangs keeps its thread until
/// the process ends: nothing can stop it, but the crawl goes on.
pub async fn profile_bounded(kind: FileKind, bytes: Arc<Vec<u8>>) -> Profile {
    silence_panics();
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let work = move || {
        // Nobody listens any more once the time is over.
        let _ = sender.send(profile(kind, &bytes));
    };
    let thread = std::thread::Builder::new()
        .name(THREAD.into())
        .stack_size(STACK);
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

    /// Bytes behind the right signature get further into each parser than noise does.
    #[test]
    fn fuzz_behind_the_signature() {
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
