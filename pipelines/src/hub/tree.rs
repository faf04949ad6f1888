//! What the tree of a repository holds, as the Hub lists it.

use serde::Deserialize;

use super::Content;
use crate::crawl::source::web::Expected;

/// An entry of a tree.
#[derive(Debug, Deserialize)]
pub(crate) struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    oid: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    lfs: Option<Lfs>,
}

/// Where a large file is kept.
#[derive(Debug, Deserialize)]
struct Lfs {
    /// SHA-256.
    oid: String,
    size: u64,
}

impl Entry {
    /// Its path and what is there; nothing of a folder.
    pub(crate) fn file(self) -> Option<(String, Kept)> {
        let kept = Kept {
            size: self.lfs.as_ref().map_or(self.size, |lfs| lfs.size),
            blob: self.oid,
            sha256: self.lfs.map(|lfs| lfs.oid),
        };
        (self.kind == "file").then_some((self.path, kept))
    }
}

/// A file as the Hub has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Bytes.
    pub size: u64,
    /// Git's hash of the blob.
    blob: String,
    /// SHA-256 of a large file.
    sha256: Option<String>,
}

impl Kept {
    /// As if that file were there, small.
    #[cfg(test)]
    pub(crate) fn of(content: &Content) -> Self {
        Self {
            size: content.size,
            blob: content.blob.clone(),
            sha256: None,
        }
    }

    /// What a download of it has to be. Git's hash is not among it.
    pub(crate) fn expected(&self) -> Expected {
        Expected {
            size: Some(self.size),
            sha256: self.sha256.clone(),
        }
    }

    /// Whether it is kept apart, and known by its SHA-256.
    pub(crate) fn is_large(&self) -> bool {
        self.sha256.is_some()
    }

    /// Whether it is that file, by size and hash.
    pub fn is(&self, content: &Content) -> bool {
        let same = match &self.sha256 {
            Some(sha256) => *sha256 == content.sha256,
            None => self.blob == content.blob,
        };
        same && self.size == content.size
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_hub_has_is_compared_by_the_hash_it_knows() {
        let content = Content::of_bytes("a", "hello\n").unwrap();
        let entry = |text: &str| -> Option<(String, Kept)> {
            serde_json::from_str::<Entry>(text).unwrap().file()
        };
        let blob = &content.blob;
        let regular = format!(r#"{{"type": "file", "path": "a", "oid": "{blob}", "size": 6}}"#);
        assert!(entry(&regular).unwrap().1.is(&content));
        let other = regular.replace("6}", "7}");
        assert!(!entry(&other).unwrap().1.is(&content));
        let oid = &content.sha256;
        let large = format!(
            r#"{{"type": "file", "path": "a", "oid": "x", "size": 130,
                "lfs": {{"oid": "{oid}", "size": 6, "pointerSize": 130}}}}"#
        );
        assert!(entry(&large).unwrap().1.is(&content));
        assert!(
            !entry(&large.replace(oid.as_str(), "y"))
                .unwrap()
                .1
                .is(&content)
        );
        let folder = r#"{"type": "directory", "path": "d", "oid": "x", "size": 0}"#;
        assert_eq!(entry(folder), None);
        let expected = entry(&large).unwrap().1.expected();
        assert_eq!(
            (expected.size, expected.sha256.as_ref()),
            (Some(6), Some(oid))
        );
    }
}
