//! Input files for tasks without a crawl: files of a folder, typed and profiled as the crawl stage does it.

use std::fs;
use std::path::{Path, PathBuf};

use pybench_run::{ContentStore, RunError};
use pybench_types::task::{Profile, SourceFile};

use pybench_files::sniff::{Sniffed, sniff};
use pybench_profile::source_file;

/// Largest file that is used, in bytes.
const MAX_BYTES: u64 = 32 << 20;

/// Profiled files and a temporary store with their content, which is deleted with this value.
#[derive(Debug)]
pub struct Fixtures {
    /// In the order they were added; a folder's files are sorted by path.
    pub files: Vec<SourceFile>,
    pub store: ContentStore,
    _folder: tempfile::TempDir,
}

impl Fixtures {
    pub fn empty() -> Result<Self, RunError> {
        let folder = tempfile::TempDir::with_prefix("pybench-library-")
            .map_err(RunError::io("a temporary folder"))?;
        Ok(Self {
            files: Vec::new(),
            store: ContentStore::open(folder.path())?,
            _folder: folder,
        })
    }

    /// Reads the files of a folder and its subfolders. Skips broken files and files of unknown types.
    pub fn read(folder: &Path) -> Result<Self, RunError> {
        let mut fixtures = Self::empty()?;
        let mut paths = Vec::new();
        collect(folder, &mut paths)?;
        paths.sort();
        for path in paths {
            fixtures.add(&path)?;
        }
        Ok(fixtures)
    }

    /// A separate store with the same files, in a temporary folder that is deleted with the second value. Files
    /// that one task adds to it do not reach other tasks.
    pub fn scratch(&self) -> Result<(ContentStore, tempfile::TempDir), RunError> {
        let folder = tempfile::TempDir::with_prefix("pybench-library-")
            .map_err(RunError::io("a temporary folder"))?;
        let store = ContentStore::open(folder.path())?;
        for file in &self.files {
            let (from, to) = (self.store.path(&file.id), store.path(&file.id));
            let wrap = || RunError::io(to.display().to_string());
            fs::create_dir_all(to.parent().unwrap_or(folder.path())).map_err(wrap())?;
            // Both are in the folder for temporary files, so usually on one file system.
            if fs::hard_link(&from, &to).is_err() {
                fs::copy(&from, &to).map_err(wrap())?;
            }
        }
        Ok((store, folder))
    }

    /// Adds a file. Returns `false` if it is too large, of an unknown type, broken, or a copy of an earlier one.
    pub fn add(&mut self, path: &Path) -> Result<bool, RunError> {
        let wrap = || RunError::io(path.display().to_string());
        let size = fs::metadata(path).map_err(wrap())?.len();
        if size > MAX_BYTES {
            return Ok(false);
        }
        let bytes = fs::read(path).map_err(wrap())?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let Sniffed::File(kind) = sniff(&name, &bytes) else {
            return Ok(false);
        };
        let file = source_file(&name, kind, &bytes);
        let known = self.files.iter().any(|known| known.id == file.id);
        if known || matches!(file.profile, Profile::Broken { .. }) {
            return Ok(false);
        }
        self.store.put(&bytes)?;
        self.files.push(file);
        Ok(true)
    }
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), RunError> {
    let wrap = || RunError::io(folder.display().to_string());
    for entry in fs::read_dir(folder).map_err(wrap())? {
        let entry = entry.map_err(wrap())?;
        // The type of the entry itself, so that links are skipped.
        let kind = entry.file_type().map_err(wrap())?;
        if kind.is_dir() {
            collect(&entry.path(), paths)?;
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
    Ok(())
}
