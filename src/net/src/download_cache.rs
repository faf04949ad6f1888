//! Cache of downloads. Unchanged files are not transferred again, and interrupted downloads resume. Only
//! responses with a validator (`ETag` or `Last-Modified`) are cached.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pybench_run::{lock_within, replace_file};
use reqwest::header::{ETAG, HeaderMap, LAST_MODIFIED};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::headers;

/// Maximum size of a metadata file, bytes.
const MAX_METADATA: u64 = 64 << 10;

/// Metadata of a cached body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct CacheMetadata {
    /// The ETag as sent, including a `W/` prefix.
    #[serde(default)]
    pub etag: Option<String>,
    #[serde(default)]
    pub modified: Option<String>,
    /// SHA-256 of the complete body; empty for a partial one.
    #[serde(default)]
    pub sha256: String,
    /// File name of the download.
    pub name: String,
    /// URL of the next page.
    #[serde(default)]
    pub next: Option<String>,
}

impl CacheMetadata {
    /// Metadata from the headers of a response.
    pub(crate) fn from_headers(headers: &HeaderMap, name: String, next: Option<String>) -> Self {
        let non_empty = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self {
            etag: non_empty(headers::text(headers, ETAG)),
            modified: non_empty(headers::text(headers, LAST_MODIFIED)),
            sha256: String::new(),
            name,
            next,
        }
    }

    /// Whether the server sent anything by which it recognizes an unchanged body.
    pub(crate) fn has_validator(&self) -> bool {
        self.etag.is_some() || self.modified.is_some()
    }

    /// A validator that guarantees byte-identical content, as range requests need it.
    pub(crate) fn strong_validator(&self) -> Option<&str> {
        let strong = self.etag.as_deref().filter(|etag| !etag.starts_with("W/"));
        strong.or(match self.etag {
            None => self.modified.as_deref(),
            Some(_) => None,
        })
    }
}

/// The cache entry of one download.
#[derive(Debug)]
pub(crate) struct CachedDownload {
    folder: PathBuf,
    /// Held so that no other process writes here.
    _lock: File,
}

/// Wait for another download of the same URL before continuing without the cache.
const LOCK_GRACE: Duration = Duration::from_secs(1);

/// CacheState of a cache entry.
#[derive(Debug, PartialEq)]
pub(crate) enum CacheState {
    Empty,
    /// With the number of bytes, at least one.
    Partial(CacheMetadata, u64),
    Complete(CacheMetadata),
}

impl CachedDownload {
    /// Opens the entry of `key` in the folder `cache`; `None` if another download holds it, or if the folder is
    /// not writable.
    pub(crate) fn open(cache: &Path, key: &str) -> Option<Self> {
        let folder = cache.join("crawl").join(key);
        fs::create_dir_all(&folder).ok()?;
        let mut options = File::options();
        let lock = options.create(true).truncate(false).write(true);
        let lock = lock.open(folder.join("lock")).ok()?;
        lock_within(&lock, LOCK_GRACE).ok()?;
        Some(Self {
            folder,
            _lock: lock,
        })
    }

    pub(crate) fn state(&self) -> CacheState {
        if let Some(metadata) = self.metadata("whole.json") {
            return CacheState::Complete(metadata);
        }
        let length = fs::metadata(self.folder.join("part")).map_or(0, |part| part.len());
        match self.metadata("part.json") {
            Some(metadata) if length > 0 && metadata.strong_validator().is_some() => {
                CacheState::Partial(metadata, length)
            }
            _ => CacheState::Empty,
        }
    }

    fn metadata(&self, name: &str) -> Option<CacheMetadata> {
        let mut text = String::new();
        let file = File::open(self.folder.join(name)).ok()?;
        file.take(MAX_METADATA).read_to_string(&mut text).ok()?;
        let metadata: CacheMetadata = serde_json::from_str(&text).ok()?;
        metadata.has_validator().then_some(metadata)
    }

    /// Starts over with an empty file.
    pub(crate) fn begin(&self, metadata: &CacheMetadata) -> io::Result<File> {
        self.clear();
        self.write("part.json", metadata)?;
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(true);
        options.open(self.folder.join("part"))
    }

    /// Opens the partial file for reading and appending.
    pub(crate) fn resume(&self) -> io::Result<File> {
        let mut options = File::options();
        options
            .read(true)
            .append(true)
            .open(self.folder.join("part"))
    }

    /// Marks the partial file as complete.
    pub(crate) fn complete(&self, metadata: &CacheMetadata) -> io::Result<()> {
        File::open(self.folder.join("part"))?.sync_all()?;
        fs::rename(self.folder.join("part"), self.folder.join("whole"))?;
        self.write("whole.json", metadata)?;
        let _ = fs::remove_file(self.folder.join("part.json"));
        Ok(())
    }

    /// Opens the complete file, if its content is unchanged.
    pub(crate) fn open_complete(&self, metadata: &CacheMetadata) -> io::Result<Option<File>> {
        let mut file = File::open(self.folder.join("whole"))?;
        let unchanged = sha256(&mut file)? == metadata.sha256;
        file.seek(SeekFrom::Start(0))?;
        Ok(unchanged.then_some(file))
    }

    /// Moves the complete file to `to`; `false` if there is none or `to` is on another file system.
    pub(crate) fn move_to(&self, to: &Path) -> bool {
        fs::rename(self.folder.join("whole"), to).is_ok()
    }

    /// Removes the files of the entry.
    pub(crate) fn clear(&self) {
        for name in ["whole.json", "whole", "part.json", "part"] {
            let _ = fs::remove_file(self.folder.join(name)); // most do not exist
        }
    }

    fn write(&self, name: &str, metadata: &CacheMetadata) -> io::Result<()> {
        let path = self.folder.join(name);
        replace_file(&path, |out| Ok(serde_json::to_writer(out, metadata)?))
    }
}

/// SHA-256 of the rest of a file, as hexadecimal digits.
pub(crate) fn sha256(file: &mut File) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hex(&hasher.finalize())),
            count => hasher.update(&piece[..count]),
        }
    }
}

pub(crate) fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn mark(etag: &str) -> CacheMetadata {
        CacheMetadata {
            etag: Some(etag.to_owned()),
            name: "a.csv".to_owned(),
            ..CacheMetadata::default()
        }
    }

    #[test]
    fn a_download_starts_resumes_and_is_cached() {
        let cache = tempfile::tempdir().unwrap();
        let entry = CachedDownload::open(cache.path(), "k").unwrap();
        assert!(
            CachedDownload::open(cache.path(), "k").is_none(),
            "one at a time"
        );
        assert_eq!(entry.state(), CacheState::Empty);
        entry
            .begin(&mark("\"1\""))
            .unwrap()
            .write_all(b"ab")
            .unwrap();
        drop(entry);
        let entry = CachedDownload::open(cache.path(), "k").unwrap();
        assert_eq!(entry.state(), CacheState::Partial(mark("\"1\""), 2));
        entry.resume().unwrap().write_all(b"c").unwrap();
        let digest = hex(&Sha256::digest(b"abc"));
        let whole = CacheMetadata {
            sha256: digest,
            ..mark("\"1\"")
        };
        entry.complete(&whole).unwrap();
        assert_eq!(entry.state(), CacheState::Complete(whole.clone()));
        let mut text = String::new();
        let mut file = entry.open_complete(&whole).unwrap().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
        // A modified file is not used.
        fs::write(cache.path().join("crawl/k/whole"), "abd").unwrap();
        assert!(entry.open_complete(&whole).unwrap().is_none());
        let place = cache.path().join("place");
        assert!(entry.move_to(&place) && !entry.move_to(&place));
        assert_eq!(fs::read_to_string(place).unwrap(), "abd");
        entry.clear();
        assert_eq!(entry.state(), CacheState::Empty);
    }

    #[test]
    fn partial_downloads_need_a_strong_validator() {
        assert_eq!(mark("\"1\"").strong_validator(), Some("\"1\""));
        assert_eq!(mark("W/\"1\"").strong_validator(), None);
        let dated = CacheMetadata {
            modified: Some("Thu, 01 Jan 1970 00:00:00 GMT".to_owned()),
            ..CacheMetadata::default()
        };
        assert!(dated.strong_validator().is_some() && !CacheMetadata::default().has_validator());
        let cache = tempfile::tempdir().unwrap();
        let entry = CachedDownload::open(cache.path(), "k").unwrap();
        entry
            .begin(&mark("W/\"1\""))
            .unwrap()
            .write_all(b"ab")
            .unwrap();
        assert_eq!(entry.state(), CacheState::Empty);
    }

    #[test]
    fn fuzz_metadata_files() {
        let cache = tempfile::tempdir().unwrap();
        let entry = CachedDownload::open(cache.path(), "k").unwrap();
        let folder = cache.path().join("crawl/k");
        fs::write(folder.join("part"), "x").unwrap();
        bolero::check!().for_each(|bytes: &[u8]| {
            fs::write(folder.join("part.json"), bytes).unwrap();
            let _ = entry.state();
        });
    }
}
