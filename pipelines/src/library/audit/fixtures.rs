//! Files to write tasks for without a crawl: a folder, typed and profiled as crawl does it.

use std::fs;
use std::path::{Path, PathBuf};

use pybench::id::Digest;
use pybench::run::{ContentStore, RunError};
use pybench::task::{Profile, SourceFile};

use crate::crawl::profile::profile;
use crate::crawl::sniff::{Sniffed, sniff};

/// Largest file that is read.
const MOST_BYTES: u64 = 32 << 20;

/// Profiled files, and a store that holds their bytes and vanishes with this value.
#[derive(Debug)]
pub struct Fixtures {
    /// The files, sorted by path.
    pub files: Vec<SourceFile>,
    /// Their bytes.
    pub store: ContentStore,
    _folder: tempfile::TempDir,
}

impl Fixtures {
    /// No files.
    pub fn empty() -> Result<Self, RunError> {
        let folder = tempfile::TempDir::with_prefix("pybench-library-")
            .map_err(RunError::io("a temporary folder"))?;
        Ok(Self {
            files: Vec::new(),
            store: ContentStore::open(folder.path())?,
            _folder: folder,
        })
    }

    /// The files of a folder and its subfolders. Files of other types and broken ones are left out.
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

    /// A store of its own with the same files, in a folder that vanishes with the second value: what is
    /// made of one task does not stay.
    pub fn scratch(&self) -> Result<(ContentStore, tempfile::TempDir), RunError> {
        let folder = tempfile::TempDir::with_prefix("pybench-library-")
            .map_err(RunError::io("a temporary folder"))?;
        let store = ContentStore::open(folder.path())?;
        for file in &self.files {
            let (from, to) = (self.store.path(&file.id), store.path(&file.id));
            let wrap = || RunError::io(to.display().to_string());
            fs::create_dir_all(to.parent().unwrap_or(folder.path())).map_err(wrap())?;
            // Both lie in the folder for temporary files, as a rule on one file system.
            if fs::hard_link(&from, &to).is_err() {
                fs::copy(&from, &to).map_err(wrap())?;
            }
        }
        Ok((store, folder))
    }

    /// One more file; `false` when it is of no known type, broken, or a copy of an earlier one.
    pub fn add(&mut self, path: &Path) -> Result<bool, RunError> {
        let wrap = || RunError::io(path.display().to_string());
        let size = fs::metadata(path).map_err(wrap())?.len();
        if size > MOST_BYTES {
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
        let profile = profile(kind, &bytes);
        let id = Digest::of_bytes(&bytes);
        let known = self.files.iter().any(|file| file.id == id);
        if known || matches!(profile, Profile::Broken { .. }) {
            return Ok(false);
        }
        self.store.put(&bytes)?;
        self.files.push(SourceFile {
            id,
            origin: name.clone(),
            name,
            size,
            kind,
            licence: None,
            fetched: String::new(),
            profile,
        });
        Ok(true)
    }
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<(), RunError> {
    let wrap = || RunError::io(folder.display().to_string());
    for entry in fs::read_dir(folder).map_err(wrap())? {
        let entry = entry.map_err(wrap())?;
        // The type of the entry itself: a link is neither.
        let kind = entry.file_type().map_err(wrap())?;
        if kind.is_dir() {
            collect(&entry.path(), paths)?;
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
    Ok(())
}
