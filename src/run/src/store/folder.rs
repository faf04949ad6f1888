//! A store in a folder, which may be on a file system that several machines share.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use pybench_files::open_regular;

use super::failure::StoreError;
use super::fetched_file::FetchedFile;
use super::{ExpectedFile, Store, check_key};
use crate::RunError;
use crate::replace::new_file;

/// Files below a folder.
#[derive(Clone, Debug)]
pub struct FolderStore {
    root: PathBuf,
}

impl FolderStore {
    /// The store in `root`, which is created when something is stored.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    fn path(&self, key: &str) -> Result<PathBuf, RunError> {
        check_key(key)?;
        Ok(self.root.join(key))
    }
}

impl Store for FolderStore {
    fn put(&self, key: &str, path: &Path) -> Result<(), RunError> {
        let to = self.path(key)?;
        create(path, &to).map_err(RunError::io(format!(
            "{} → {}",
            path.display(),
            to.display()
        )))
    }

    fn fetch_expected(
        &self,
        key: &str,
        path: &Path,
        expected: &ExpectedFile,
    ) -> Result<bool, RunError> {
        let from = self.path(key)?;
        let mut file = match open_regular(&from) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => opened.map_err(RunError::io(from.display().to_string()))?,
        };
        let mut copy = || -> Result<(), StoreError> {
            let mut out = FetchedFile::new(path, expected)?;
            io::copy(&mut file, &mut out)?;
            out.finish(path)
        };
        match copy() {
            Ok(()) => Ok(true),
            Err(StoreError::File(error)) => Err(RunError::io(format!(
                "{} → {}",
                from.display(),
                path.display()
            ))(error)),
            Err(refused) => Err(RunError::BadInput(format!("{}: {refused}", from.display()))),
        }
    }

    fn size(&self, key: &str) -> Result<Option<u64>, RunError> {
        let path = self.path(key)?;
        match fs::metadata(&path) {
            Ok(found) => Ok(found.is_file().then_some(found.len())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(RunError::io(path.display().to_string())(error)),
        }
    }

    fn list_up_to(&self, folder: &str, max: usize) -> Result<Vec<String>, RunError> {
        let (path, mut keys) = (self.path(folder)?, Vec::new());
        add_keys(&path, folder, max, &mut keys)?;
        keys.sort();
        Ok(keys)
    }

    fn delete(&self, key: &str) -> Result<(), RunError> {
        let path = self.path(key)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(RunError::io(path.display().to_string())(error))
            }
            _ => Ok(()),
        }
    }

    /// What is written to a folder has no parts.
    fn end_uploads(&self) -> Result<u64, RunError> {
        Ok(0)
    }

    fn describe(&self) -> String {
        self.root.display().to_string()
    }
}

/// Copies a file to a path that does not exist yet; one that exists stays as it is.
fn create(from: &Path, to: &Path) -> io::Result<()> {
    if to.is_file() {
        return Ok(());
    }
    let mut file: File = open_regular(from)?;
    let mut out = new_file(to)?;
    io::copy(&mut file, &mut out)?;
    let out = out.into_inner().map_err(|error| error.into_error())?;
    out.as_file().sync_all()?;
    match out.persist_noclobber(to) {
        Err(error) if error.error.kind() != ErrorKind::AlreadyExists => Err(error.error),
        _ => Ok(()),
    }
}

/// Adds the keys of the files in and below a folder, until there are more than `max`. Unfinished files begin with a dot.
fn add_keys(path: &Path, folder: &str, max: usize, keys: &mut Vec<String>) -> Result<(), RunError> {
    let wrap = || RunError::io(path.display().to_string());
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(wrap())?,
    };
    for entry in entries {
        let entry = entry.map_err(wrap())?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let key = format!("{folder}/{name}");
        match entry.file_type().map_err(wrap())? {
            _ if check_key(&key).is_err() => {}
            kind if kind.is_dir() => add_keys(&entry.path(), &key, max, keys)?,
            kind if kind.is_file() && keys.len() == max => {
                return Err(RunError::BadInput(format!(
                    "{}: {}",
                    path.display(),
                    StoreError::TooMany(max)
                )));
            }
            kind if kind.is_file() => keys.push(key),
            _ => {}
        }
    }
    Ok(())
}
