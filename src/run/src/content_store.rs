//! Content-addressed files. A disk or a person can change them later, so their bytes are checked when they are used.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pybench_files::open_regular;
use pybench_types::id::{CompactDigest, Digest};

use super::RunError;
use super::replace::write_atomically;
use super::store::{ExpectedFile, Store};

/// Files stored by the digest of their bytes, as `<root>/<first two digits>/<digest>`.
#[derive(Clone, Debug)]
pub struct ContentStore {
    root: PathBuf,
    /// The files whose bytes were checked, as they were then. Clones share them.
    checked: Arc<Mutex<HashMap<CompactDigest, Stamp>>>,
    /// Holds the files for other machines.
    remote: Option<Arc<dyn Store>>,
}

/// What changes when somebody writes to a file or replaces it: inode, size, and the times of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp([i64; 6]);

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self([
            metadata.ino() as i64,
            metadata.size() as i64,
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        ])
    }
}

impl ContentStore {
    /// Opens or creates a store.
    pub fn open(root: &Path) -> Result<Self, RunError> {
        fs::create_dir_all(root).map_err(RunError::io(root.display().to_string()))?;
        Ok(Self {
            root: root.to_owned(),
            checked: Arc::default(),
            remote: None,
        })
    }

    /// The store that holds the files for other machines.
    pub(crate) fn remote(&self) -> Option<&dyn Store> {
        self.remote.as_deref()
    }

    /// Keeps the files in `remote` too, and reads from there what the folder does not have.
    pub fn with_remote(self, remote: Option<Arc<dyn Store>>) -> Self {
        Self { remote, ..self }
    }

    /// Path of the file with this digest, whether or not it exists. Its bytes may be others: what uses them needs
    /// [`ContentStore::checked_path`], unless it has just stored them.
    pub fn path(&self, id: &Digest) -> PathBuf {
        self.root.join(&id.as_str()[..2]).join(id.as_str())
    }

    /// Stores bytes. A file that already has them is left as it is; a damaged one is replaced.
    pub fn put(&self, bytes: &[u8]) -> Result<Digest, RunError> {
        let id = Digest::of_bytes(bytes);
        let path = self.path(&id);
        if !fs::read(&path).is_ok_and(|stored| stored == bytes) {
            write_atomically(&path, bytes)?;
        }
        if let Some(remote) = &self.remote {
            remote.put(&key(&id), &path)?;
        }
        Ok(id)
    }

    /// Reads the bytes with this digest.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the file is missing, or its bytes have another digest; I/O errors.
    pub fn get(&self, id: &Digest) -> Result<Vec<u8>, RunError> {
        let mut bytes = Vec::new();
        self.check(id, |mut file| {
            file.read_to_end(&mut bytes)?;
            Ok(Digest::of_bytes(&bytes))
        })?;
        Ok(bytes)
    }

    /// The path of the file with this digest, after its bytes were checked. Unless the file changes, they are read
    /// once.
    ///
    /// # Errors
    /// As [`ContentStore::get`].
    pub fn checked_path(&self, id: &Digest) -> Result<PathBuf, RunError> {
        let path = self.path(id);
        let stamp = fs::metadata(&path)
            .ok()
            .map(|metadata| Stamp::of(&metadata));
        let known = self.lock().get(&id.into()).copied();
        if stamp.is_none() || stamp != known {
            self.check(id, Digest::of_reader)?;
        }
        Ok(path)
    }

    /// Reads a file of at most `max` bytes from the remote store if the folder does not have it, or has a damaged one; `false` if
    /// there is none, or no remote store. The file appears in the folder after its bytes were checked.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if the file is larger, or its bytes have another digest; [`RunError::Store`] if the store cannot be
    /// read.
    pub fn fetch_remote(&self, id: &Digest, max: u64) -> Result<bool, RunError> {
        let Some(remote) = &self.remote else {
            return Ok(false);
        };
        let path = self.path(id);
        let known = fs::metadata(&path).ok();
        if known.as_ref().is_some_and(|known| known.len() > max) {
            return Err(RunError::BadInput(format!(
                "{} has more than {max} bytes",
                path.display()
            )));
        }
        // A damaged file is replaced.
        if known.is_some() && self.checked_path(id).is_ok() {
            return Ok(true);
        }
        let expected = ExpectedFile {
            max,
            ..ExpectedFile::with_digest(id)
        };
        remote.fetch_expected(&key(id), &path, &expected)
    }

    /// Compares the digest that `digest` computes of the file with its name.
    fn check(
        &self,
        id: &Digest,
        digest: impl FnOnce(fs::File) -> std::io::Result<Digest>,
    ) -> Result<(), RunError> {
        let path = self.path(id);
        self.fetch_missing(id, &path)?;
        let digest = open_regular(&path).and_then(|file| {
            // A later change gives another stamp than this one.
            let stamp = Stamp::of(&file.metadata()?);
            Ok((digest(file)?, stamp))
        });
        match digest {
            Ok((digest, stamp)) if digest == *id => {
                self.lock().insert(id.into(), stamp);
                Ok(())
            }
            Ok(_) => Err(unusable(&path, "is damaged (its digest is not its name)")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(unusable(&path, "is missing"))
            }
            Err(error) => Err(RunError::io(path.display().to_string())(error)),
        }
    }

    /// Reads a file from the remote store if the folder does not have it.
    fn fetch_missing(&self, id: &Digest, path: &Path) -> Result<(), RunError> {
        match &self.remote {
            Some(remote) if !path.exists() => {
                let expected = ExpectedFile::with_digest(id);
                remote.fetch_expected(&key(id), path, &expected).map(|_| ())
            }
            _ => Ok(()),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<CompactDigest, Stamp>> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key of a file in a remote store.
fn key(id: &Digest) -> String {
    format!("files/{}/{id}", &id.as_str()[..2])
}

fn unusable(path: &Path, why: &str) -> RunError {
    RunError::BadInput(format!(
        "{} {why}; restore it from a backup, or start a new run with --run NAME",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::{ExitCode, FolderStore};

    #[test]
    fn files_are_stored_by_content_and_readable_by_others() {
        let root = tempfile::tempdir().unwrap();
        let store = ContentStore::open(root.path()).unwrap();
        let id = store.put(b"abc").unwrap();
        assert_eq!(store.put(b"abc").unwrap(), id);
        assert_eq!(store.get(&id).unwrap(), b"abc");
        let plain = root.path().join("plain");
        fs::write(&plain, "").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&store.path(&id)), mode(&plain));
        assert!(store.get(&Digest::of_bytes(b"other")).is_err());
    }

    #[test]
    fn damaged_content_is_not_returned_and_is_replaced() {
        let root = tempfile::tempdir().unwrap();
        let store = ContentStore::open(root.path()).unwrap();
        let id = store.put(b"abc").unwrap();
        for damaged in [&b""[..], b"abd", b"abcd"] {
            fs::write(store.path(&id), damaged).unwrap();
            let error = store.checked_path(&id).unwrap_err();
            assert_eq!(error.exit_code(), ExitCode::BadInput);
            assert!(error.to_string().contains("is damaged"), "{error}");
            store.put(b"abc").unwrap();
            assert_eq!(store.get(&id).unwrap(), b"abc");
        }
        fs::remove_file(store.path(&id)).unwrap();
        let error = store.get(&id).unwrap_err().to_string();
        assert!(error.contains("is missing"), "{error}");
    }

    #[test]
    fn what_a_remote_store_has_is_bounded_and_checked() {
        let [here, there] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let remote: Arc<dyn Store> = Arc::new(FolderStore::new(there.path()));
        let store = ContentStore::open(here.path()).unwrap();
        let id = Digest::of_bytes(b"abc");
        assert!(!store.fetch_remote(&id, 3).unwrap(), "no remote store");
        let store = store.with_remote(Some(remote.clone()));
        assert!(!store.fetch_remote(&id, 3).unwrap());
        let (file, stored) = (here.path().join("file"), store.path(&id));
        let folder = stored.parent().unwrap();
        for (bytes, expected) in [("abcd", "more than 3 bytes"), ("abd", "is damaged")] {
            fs::write(&file, bytes).unwrap();
            remote.put(&key(&id), &file).unwrap();
            let error = store.fetch_remote(&id, 3).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains(&key(&id)), "{error}");
            assert!(store.get(&id).is_err());
            // Neither the file nor a temporary one.
            assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
            remote.delete(&key(&id)).unwrap();
        }
        fs::write(&file, "abc").unwrap();
        remote.put(&key(&id), &file).unwrap();
        assert!(store.fetch_remote(&id, 3).unwrap());
        assert_eq!(fs::read(&stored).unwrap(), b"abc");
        fs::write(&stored, "abd").unwrap();
        assert!(store.fetch_remote(&id, 3).unwrap());
        assert_eq!(fs::read(&stored).unwrap(), b"abc");
    }

    #[test]
    fn a_checked_file_is_checked_again_after_a_change() {
        let root = tempfile::tempdir().unwrap();
        let store = ContentStore::open(root.path()).unwrap();
        let id = store.put(b"abc").unwrap();
        let path = store.checked_path(&id).unwrap();
        let times = fs::metadata(&path).unwrap();
        assert_eq!(store.lock().len(), 1);
        store.clone().checked_path(&id).unwrap();
        // The clock of the file system ticks every few milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(20));
        // The same size, and the old time put back: the kernel still notes when that was.
        fs::write(&path, "abd").unwrap();
        let old = fs::FileTimes::new().set_modified(times.modified().unwrap());
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_times(old)
            .unwrap();
        assert!(store.checked_path(&id).is_err());
        store.put(b"abc").unwrap();
        assert_eq!(store.checked_path(&id).unwrap(), path);
    }
}
