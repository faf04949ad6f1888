//! The run folder: frozen recipe, journal, content-addressed files, artefacts, report.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::{Journal, RunError};
use crate::id::Digest;

/// A run's folder, held by this process alone while open.
#[derive(Debug)]
pub struct RunFolder {
    root: PathBuf,
    journal: Journal,
    store: ContentStore,
    /// Held for its lock; released when the process ends, however it ends.
    _lock: File,
}

impl RunFolder {
    /// Open (or make) the folder for writing. Fails with [`RunError::Conflict`] when another
    /// process holds it or when it was made by another recipe; the text shows the difference.
    /// `recipe` is the resolved recipe as TOML, which is frozen into the folder.
    pub fn open(root: &Path, recipe: &str) -> Result<Self, RunError> {
        let at = |path: &Path| format!("run folder {}", path.display());
        fs::create_dir_all(root).map_err(RunError::io(at(root)))?;
        let lock_path = root.join("lock");
        let lock = File::create(&lock_path).map_err(RunError::io(at(&lock_path)))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            RunError::Conflict(format!(
                "run folder {} is in use by another process; wait for it or choose another with --run NAME",
                root.display()
            ))
        })?;
        freeze_recipe(root, recipe)?;
        let journal = Journal::open(&root.join("journal.sqlite"))?;
        let store = ContentStore::open(&root.join("files"))?;
        Ok(Self {
            root: root.to_owned(),
            journal,
            store,
            _lock: lock,
        })
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Content-addressed files.
    pub fn store(&self) -> &ContentStore {
        &self.store
    }

    /// Write an artefact (or report) whole: a reader sees the old one or the new one.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, RunError> {
        let path = self.root.join(name);
        write_atomically(&path, bytes)?;
        Ok(path)
    }
}

fn freeze_recipe(root: &Path, recipe: &str) -> Result<(), RunError> {
    let path = root.join("recipe.toml");
    match fs::read_to_string(&path) {
        Ok(frozen) if frozen == recipe => Ok(()),
        Ok(frozen) => Err(RunError::Conflict(format!(
            "run folder {} was made by another recipe:\n{}use that recipe, or choose another folder with --run NAME",
            root.display(),
            line_difference(&frozen, recipe),
        ))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            write_atomically(&path, recipe.as_bytes())
        }
        Err(error) => Err(RunError::io(path.display().to_string())(error)),
    }
}

/// The lines that only one side has, marked `-` (frozen) and `+` (now).
fn line_difference(frozen: &str, now: &str) -> String {
    let only_in = |a: &str, b: &str, mark: char| -> String {
        let other: std::collections::HashSet<_> = b.lines().collect();
        a.lines()
            .filter(|l| !other.contains(l))
            .map(|l| format!("  {mark} {l}\n"))
            .collect()
    };
    only_in(frozen, now, '-') + &only_in(now, frozen, '+')
}

/// Write through a temporary file and a rename.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), RunError> {
    let wrap = || RunError::io(path.display().to_string());
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(wrap())?;
    let mut file = tempfile::NamedTempFile::new_in(parent).map_err(wrap())?;
    file.write_all(bytes).map_err(wrap())?;
    file.as_file().sync_all().map_err(wrap())?;
    file.persist(path).map_err(|error| wrap()(error.error))?;
    Ok(())
}

/// Files by the digest of their bytes, under `<root>/<first two digits>/<digest>`.
#[derive(Clone, Debug)]
pub struct ContentStore {
    root: PathBuf,
}

impl ContentStore {
    /// Open (or make) a store.
    pub fn open(root: &Path) -> Result<Self, RunError> {
        fs::create_dir_all(root).map_err(RunError::io(root.display().to_string()))?;
        Ok(Self {
            root: root.to_owned(),
        })
    }

    /// Where the bytes of that digest lie, whether they are there or not.
    pub fn path(&self, id: &Digest) -> PathBuf {
        self.root.join(&id.as_str()[..2]).join(id.as_str())
    }

    /// Store bytes; the same bytes again cost nothing.
    pub fn put(&self, bytes: &[u8]) -> Result<Digest, RunError> {
        let id = Digest::of_bytes(bytes);
        let path = self.path(&id);
        if !path.exists() {
            write_atomically(&path, bytes)?;
        }
        Ok(id)
    }

    /// The bytes of that digest.
    pub fn get(&self, id: &Digest) -> Result<Vec<u8>, RunError> {
        let path = self.path(id);
        fs::read(&path).map_err(RunError::io(path.display().to_string()))
    }
}
