//! The entries of a repository's tree, as the Hub lists them.

use serde::Deserialize;

use super::UploadFile;
use pybench_net::Expected;

#[derive(Debug, Deserialize)]
pub struct TreeEntry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    oid: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    lfs: Option<Lfs>,
}

/// The LFS pointer of a large file.
#[derive(Debug, Deserialize)]
struct Lfs {
    /// SHA-256.
    oid: String,
    size: u64,
}

impl TreeEntry {
    /// The path and the file; `None` for a folder.
    pub fn file(self) -> Option<(String, RemoteFile)> {
        let file = RemoteFile {
            size: self.lfs.as_ref().map_or(self.size, |lfs| lfs.size),
            blob: self.oid,
            sha256: self.lfs.map(|lfs| lfs.oid),
        };
        (self.kind == "file").then_some((self.path, file))
    }
}

/// A file on the Hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFile {
    /// Size in bytes.
    pub size: u64,
    /// The hash of the git blob.
    blob: String,
    /// The SHA-256, for a large file only.
    sha256: Option<String>,
}

impl RemoteFile {
    /// The entry that a small file has after its upload.
    pub fn of(content: &UploadFile) -> Self {
        Self {
            size: content.size,
            blob: content.blob.clone(),
            sha256: None,
        }
    }

    /// The expected properties of a download. They do not include the git hash.
    pub fn expected(&self) -> Expected {
        Expected {
            size: Some(self.size),
            sha256: self.sha256.clone(),
        }
    }

    /// Whether the file is stored outside of git and identified by its SHA-256.
    pub(crate) fn is_large(&self) -> bool {
        self.sha256.is_some()
    }

    /// Whether a local file has the same size and hash.
    pub fn matches(&self, content: &UploadFile) -> bool {
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
    fn remote_files_are_compared_by_the_hash_that_the_hub_lists() {
        let content = UploadFile::of_bytes("a", "hello\n").unwrap();
        let entry = |text: &str| -> Option<(String, RemoteFile)> {
            serde_json::from_str::<TreeEntry>(text).unwrap().file()
        };
        let blob = &content.blob;
        let regular = format!(r#"{{"type": "file", "path": "a", "oid": "{blob}", "size": 6}}"#);
        assert!(entry(&regular).unwrap().1.matches(&content));
        let other = regular.replace("6}", "7}");
        assert!(!entry(&other).unwrap().1.matches(&content));
        let oid = &content.sha256;
        let large = format!(
            r#"{{"type": "file", "path": "a", "oid": "x", "size": 130,
                "lfs": {{"oid": "{oid}", "size": 6, "pointerSize": 130}}}}"#
        );
        assert!(entry(&large).unwrap().1.matches(&content));
        assert!(
            !entry(&large.replace(oid.as_str(), "y"))
                .unwrap()
                .1
                .matches(&content)
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
