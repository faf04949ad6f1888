//! Downloads that are kept, so that what has not changed is not sent again, and what broke off goes on
//! where it did. Kept is only what the server gave a mark for (`ETag`, `Last-Modified`).

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pybench::run::lock_within;
use reqwest::header::{ETAG, HeaderMap, LAST_MODIFIED};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::headers;

/// Longest mark that is read, bytes.
const MAX_MARK: u64 = 64 << 10;

/// What a server said of a body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// As the server gave it, `W/` included.
    #[serde(default)]
    pub(super) etag: Option<String>,
    #[serde(default)]
    pub(super) modified: Option<String>,
    /// Of the whole body; empty of a part.
    #[serde(default)]
    pub(super) sha256: String,
    /// The file's name.
    pub(super) name: String,
    /// The page after this one.
    #[serde(default)]
    pub(super) next: Option<String>,
}

impl Mark {
    /// Of an answer.
    pub(super) fn of(headers: &HeaderMap, name: String, next: Option<String>) -> Self {
        let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self {
            etag: said(headers::text(headers, ETAG)),
            modified: said(headers::text(headers, LAST_MODIFIED)),
            sha256: String::new(),
            name,
            next,
        }
    }

    /// By what the server knows whether it is still the same.
    pub(super) fn is_of_use(&self) -> bool {
        self.etag.is_some() || self.modified.is_some()
    }

    /// By what it knows that it is the same byte for byte, so that a part of it can be added.
    pub(super) fn exact(&self) -> Option<&str> {
        let strong = self.etag.as_deref().filter(|etag| !etag.starts_with("W/"));
        strong.or(match self.etag {
            None => self.modified.as_deref(),
            Some(_) => None,
        })
    }
}

/// A place for one download.
#[derive(Debug)]
pub(super) struct Kept {
    folder: PathBuf,
    /// Held: nobody else writes here.
    _lock: File,
}

/// How long another download of the same may hold its lock before this one goes on without.
const GRACE: Duration = Duration::from_secs(1);

/// What is there already.
#[derive(Debug, PartialEq)]
pub(super) enum State {
    Nothing,
    /// So many bytes of it, at least one.
    Part(Mark, u64),
    Whole(Mark),
}

impl Kept {
    /// The place of `key` below `cache`; `None` where another download is under way, or where nothing can be
    /// kept.
    pub(super) fn open(cache: &Path, key: &str) -> Option<Self> {
        let folder = cache.join("crawl").join(key);
        fs::create_dir_all(&folder).ok()?;
        let mut options = File::options();
        let lock = options.create(true).truncate(false).write(true);
        let lock = lock.open(folder.join("lock")).ok()?;
        lock_within(&lock, GRACE).ok()?;
        Some(Self {
            folder,
            _lock: lock,
        })
    }

    pub(super) fn state(&self) -> State {
        if let Some(mark) = self.mark("whole.json") {
            return State::Whole(mark);
        }
        let length = fs::metadata(self.folder.join("part")).map_or(0, |part| part.len());
        match self.mark("part.json") {
            Some(mark) if length > 0 && mark.exact().is_some() => State::Part(mark, length),
            _ => State::Nothing,
        }
    }

    fn mark(&self, name: &str) -> Option<Mark> {
        let mut text = String::new();
        let file = File::open(self.folder.join(name)).ok()?;
        file.take(MAX_MARK).read_to_string(&mut text).ok()?;
        let mark: Mark = serde_json::from_str(&text).ok()?;
        mark.is_of_use().then_some(mark)
    }

    /// Begin anew: an empty file.
    pub(super) fn begin(&self, mark: &Mark) -> io::Result<File> {
        self.forget();
        self.write("part.json", mark)?;
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(true);
        options.open(self.folder.join("part"))
    }

    /// Go on: what is there, to be read and added to.
    pub(super) fn go_on(&self) -> io::Result<File> {
        let mut options = File::options();
        options
            .read(true)
            .append(true)
            .open(self.folder.join("part"))
    }

    /// The part is the whole now.
    pub(super) fn complete(&self, mark: &Mark) -> io::Result<()> {
        File::open(self.folder.join("part"))?.sync_all()?;
        fs::rename(self.folder.join("part"), self.folder.join("whole"))?;
        self.write("whole.json", mark)?;
        let _ = fs::remove_file(self.folder.join("part.json"));
        Ok(())
    }

    /// The whole, if it still is what it was.
    pub(super) fn whole(&self, mark: &Mark) -> io::Result<Option<File>> {
        let mut file = File::open(self.folder.join("whole"))?;
        let same = sha256(&mut file)? == mark.sha256;
        file.seek(SeekFrom::Start(0))?;
        Ok(same.then_some(file))
    }

    /// Move the whole there, if there is one and both places are on one disk.
    pub(super) fn hand_over(&self, to: &Path) -> bool {
        fs::rename(self.folder.join("whole"), to).is_ok()
    }

    /// Remove what is there.
    pub(super) fn forget(&self) {
        for name in ["whole.json", "whole", "part.json", "part"] {
            let _ = fs::remove_file(self.folder.join(name)); // most are not there
        }
    }

    fn write(&self, name: &str, mark: &Mark) -> io::Result<()> {
        let new = tempfile::NamedTempFile::new_in(&self.folder)?;
        serde_json::to_writer(&new, mark)?;
        new.persist(self.folder.join(name))?;
        Ok(())
    }
}

/// Of the rest of a file, as hexadecimal digits.
pub(super) fn sha256(file: &mut File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hex(&hasher.finalize())),
            count => hasher.update(&piece[..count]),
        }
    }
}

pub(super) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn mark(etag: &str) -> Mark {
        Mark {
            etag: Some(etag.to_owned()),
            name: "a.csv".to_owned(),
            ..Mark::default()
        }
    }

    #[test]
    fn a_download_is_begun_goes_on_and_is_kept() {
        let cache = tempfile::tempdir().unwrap();
        let kept = Kept::open(cache.path(), "k").unwrap();
        assert!(Kept::open(cache.path(), "k").is_none(), "one at a time");
        assert_eq!(kept.state(), State::Nothing);
        kept.begin(&mark("\"1\""))
            .unwrap()
            .write_all(b"ab")
            .unwrap();
        drop(kept);
        let kept = Kept::open(cache.path(), "k").unwrap();
        assert_eq!(kept.state(), State::Part(mark("\"1\""), 2));
        kept.go_on().unwrap().write_all(b"c").unwrap();
        let digest = hex(&Sha256::digest(b"abc"));
        let whole = Mark {
            sha256: digest,
            ..mark("\"1\"")
        };
        kept.complete(&whole).unwrap();
        assert_eq!(kept.state(), State::Whole(whole.clone()));
        let mut text = String::new();
        let mut file = kept.whole(&whole).unwrap().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
        // What somebody has changed is not taken for what it was.
        fs::write(cache.path().join("crawl/k/whole"), "abd").unwrap();
        assert!(kept.whole(&whole).unwrap().is_none());
        let place = cache.path().join("place");
        assert!(kept.hand_over(&place) && !kept.hand_over(&place));
        assert_eq!(fs::read_to_string(place).unwrap(), "abd");
        kept.forget();
        assert_eq!(kept.state(), State::Nothing);
    }

    #[test]
    fn parts_need_an_exact_mark() {
        assert_eq!(mark("\"1\"").exact(), Some("\"1\""));
        assert_eq!(mark("W/\"1\"").exact(), None);
        let dated = Mark {
            modified: Some("Thu, 01 Jan 1970 00:00:00 GMT".to_owned()),
            ..Mark::default()
        };
        assert!(dated.exact().is_some() && !Mark::default().is_of_use());
        let cache = tempfile::tempdir().unwrap();
        let kept = Kept::open(cache.path(), "k").unwrap();
        kept.begin(&mark("W/\"1\""))
            .unwrap()
            .write_all(b"ab")
            .unwrap();
        assert_eq!(kept.state(), State::Nothing);
    }

    #[test]
    fn fuzz_marks() {
        let cache = tempfile::tempdir().unwrap();
        let kept = Kept::open(cache.path(), "k").unwrap();
        let folder = cache.path().join("crawl/k");
        fs::write(folder.join("part"), "x").unwrap();
        bolero::check!().for_each(|bytes: &[u8]| {
            fs::write(folder.join("part.json"), bytes).unwrap();
            let _ = kept.state();
        });
    }
}
