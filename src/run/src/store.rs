//! Where the files of a run are kept for other machines: content-addressed files and artifacts.
//!
//! A key names its content by digest, so that a file is never replaced and two processes that store one at the same time
//! store the same. The journal says which digest an artifact has, so that a half-written one is never read. The run folder
//! holds the files that this machine has made or read.

mod bucket;
mod bucket_store;
mod connection;
mod download;
mod failure;
mod fetched_file;
mod folder;
mod run_bucket;
mod server;
mod uploads;

use std::fmt::Debug;
use std::path::Path;

use pybench_types::id::Digest;

use crate::RunError;

pub(crate) use self::bucket::BucketPath;
pub use self::bucket::{local_copy, local_copy_of};
pub use self::bucket_store::BucketStore;
pub use self::folder::FolderStore;
pub(crate) use self::run_bucket::RunBucket;
pub use self::server::{ObjectServer, StoreKind};

/// Maximum number of keys that [`Store::list`] reads; a bucket of somebody else may have any number of them.
const MAX_KEYS: usize = 10_000_000;

/// What a fetched file has to be; another one does not appear at its path.
#[derive(Clone, Debug)]
pub struct ExpectedFile {
    /// Maximum size in bytes.
    pub max: u64,
    /// Digest of its bytes; `None` if it is not known.
    pub digest: Option<Digest>,
}

impl ExpectedFile {
    /// A file of any size with this digest.
    pub fn with_digest(digest: &Digest) -> Self {
        Self {
            digest: Some(digest.clone()),
            ..Self::up_to(u64::MAX)
        }
    }

    /// A file of at most `max` bytes.
    pub fn up_to(max: u64) -> Self {
        Self { max, digest: None }
    }
}

/// Files by key. Every implementation passes the tests in `src/cluster/tests/cluster/store.rs`.
pub trait Store: Debug + Send + Sync {
    /// Stores the file at `path`, unless the store has the key. Readers see the whole file or none.
    ///
    /// # Errors
    /// [`RunError::BadInput`] for a wrong key; the file cannot be read, or the store cannot be written.
    fn put(&self, key: &str, path: &Path) -> Result<(), RunError>;

    /// Copies a file to `path`, which appears when it is complete; `false` if the store does not have it.
    ///
    /// # Errors
    /// As [`Store::put`].
    fn fetch(&self, key: &str, path: &Path) -> Result<bool, RunError> {
        self.fetch_up_to(key, path, u64::MAX)
    }

    /// As [`Store::fetch`], and reads at most `max` bytes.
    ///
    /// # Errors
    /// As [`Store::put`]; [`RunError::BadInput`] if the file is larger.
    fn fetch_up_to(&self, key: &str, path: &Path, max: u64) -> Result<bool, RunError> {
        self.fetch_expected(key, path, &ExpectedFile::up_to(max))
    }

    /// As [`Store::fetch`]; size and digest are checked while the bytes arrive, before the file appears.
    ///
    /// # Errors
    /// As [`Store::put`]; [`RunError::BadInput`] if the file is another one.
    fn fetch_expected(
        &self,
        key: &str,
        path: &Path,
        expected: &ExpectedFile,
    ) -> Result<bool, RunError>;

    /// Size in bytes; `None` if the store does not have the key.
    ///
    /// # Errors
    /// As [`Store::put`].
    fn size(&self, key: &str) -> Result<Option<u64>, RunError>;

    /// Keys below a folder, sorted.
    ///
    /// # Errors
    /// As [`Store::put`]; [`RunError::BadInput`] for a folder with more than ten million files.
    fn list(&self, folder: &str) -> Result<Vec<String>, RunError> {
        self.list_up_to(folder, MAX_KEYS)
    }

    /// As [`Store::list`], for a folder of at most `max` files.
    ///
    /// # Errors
    /// As [`Store::put`]; [`RunError::BadInput`] if there are more.
    fn list_up_to(&self, folder: &str, max: usize) -> Result<Vec<String>, RunError>;

    /// Deletes a file; one that is missing is no error.
    ///
    /// # Errors
    /// As [`Store::put`].
    fn delete(&self, key: &str) -> Result<(), RunError>;

    /// Ends the uploads below this store that were begun and not finished, and returns their number. One that a process
    /// works on at this moment begins again.
    ///
    /// # Errors
    /// As [`Store::put`]; this user may not list uploads.
    fn end_uploads(&self) -> Result<u64, RunError>;

    /// Name of the store, for messages.
    fn describe(&self) -> String;
}

/// Ends the unfinished uploads below a store. They cost money as long as they exist, and nothing depends on them, so a failure
/// is only logged.
pub(crate) fn end_uploads(store: &dyn Store) {
    match store.end_uploads() {
        Ok(0) => {}
        Ok(count) => tracing::info!("deleted unfinished uploads: {count}"),
        Err(error) => tracing::warn!(
            "cannot delete unfinished uploads, for which a cloud charges until they are deleted: {error}"
        ),
    }
}

/// Checks a key: parts of letters, digits, `-`, `_` and `.`, separated by `/`. A part does not begin with a dot, so that
/// no key leaves the store or names an unfinished file.
fn check_key(key: &str) -> Result<(), RunError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_part =
        |part: &str| !part.is_empty() && !part.starts_with('.') && part.chars().all(allowed);
    match key.split('/').all(is_part) && key.len() <= 512 {
        true => Ok(()),
        false => Err(RunError::BadInput(format!(
            "{key:?} is no key of a store: it has parts of letters, digits, `-`, `_` and `.`, separated by `/`"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_within_the_store() {
        for good in [
            "a",
            "files/ab/abcd",
            "artifacts/tasks.jsonl/0f",
            "a-b_c.d/e",
        ] {
            assert!(check_key(good).is_ok(), "{good}");
        }
        for bad in [
            "", "/a", "a/", "a//b", "..", "a/../b", ".tmp-1", "a/.b", "a b", "ü", "a\\b",
        ] {
            assert!(check_key(bad).is_err(), "{bad}");
        }
    }
}
