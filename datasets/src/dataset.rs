//! Writes a whole dataset: split, shards and card. The dataset is replaced atomically.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use pybench_run::ContentStore;
use pybench_types::id::Digest;
use pybench_types::task::TaskFile;

pub use crate::row::FILES_DIR;
pub use crate::written::WrittenDataset;

use crate::card::{self, CardInfo};
use crate::row_source::{RowSource, split_rows};
use crate::scrub::Scrubber;
use crate::shards::ShardSettings;
use crate::split::SplitSettings;
use crate::{DatasetError, Row, write_rows};

/// Prefix of the temporary folders next to a dataset. A folder that no process holds was left by a killed one, and is
/// removed.
const TEMPORARY_PREFIX: &str = ".pybench-dataset-";

/// Write a dataset: `README.md` and `data/*.parquet`. An existing dataset in `folder` is replaced atomically. The
/// caller must make sure that no other process writes there.
///
/// Every row is scrubbed by [`Scrubber::of_machine`] first.
pub fn write(
    folder: &Path,
    rows: Vec<Row>,
    split_settings: &SplitSettings,
    shard_settings: &ShardSettings,
    info: &CardInfo,
) -> Result<WrittenDataset, DatasetError> {
    let scrubber = Scrubber::of_machine();
    write_with(
        folder,
        rows,
        (split_settings, shard_settings),
        info,
        &scrubber,
        None,
    )
}

/// Like [`write`], with the given scrubber. If `store` has the input files of the rows, they are copied to
/// [`FILES_DIR`] so that others can re-execute the rows. Files without a license, and files in which the scrubber finds
/// something or which it cannot search, are left out.
///
/// Each row is made twice and never held: once to split, once to write.
pub fn write_with(
    folder: &Path,
    rows: impl RowSource,
    (split_settings, shard_settings): (&SplitSettings, &ShardSettings),
    info: &CardInfo,
    scrubber: &Scrubber,
    store: Option<&ContentStore>,
) -> Result<WrittenDataset, DatasetError> {
    let new = StagingFolder::create(folder)?;
    let scratch = new.scratch()?;
    let (split, diversity) = split_rows(&rows, split_settings, scrubber, scratch.path())?;
    drop(scratch);
    let data = new.path().join("data");
    fs::create_dir(&data).map_err(DatasetError::io(&data))?;
    let rows = write_rows::write(&data, &rows, &split, scrubber, shard_settings)?;
    let mut written = WrittenDataset {
        train: rows.train,
        test: rows.test,
        others: BTreeMap::new(),
        split,
        diversity,
        digest: rows.digest,
        scrub: rows.scrub,
        benchmarks: info.benchmarks.clone(),
        files: (0, 0),
    };
    if let Some(store) = store {
        let to = new.path().join(FILES_DIR);
        copy_input_files(&to, rows.files, store, scrubber, &mut written)?;
    }
    new.finish(info, written, folder)
}

/// A dataset that is being written in a temporary folder next to its destination.
pub(crate) struct StagingFolder {
    folder: tempfile::TempDir,
    /// Tells other processes that the folder is in use.
    _lock: File,
}

impl StagingFolder {
    /// Create the folder, and remove folders left by killed processes.
    pub(crate) fn create(destination: &Path) -> Result<Self, DatasetError> {
        let parent = parent(destination)?;
        remove_leftovers(parent)?;
        loop {
            let temporary = tempfile::Builder::new()
                .prefix(TEMPORARY_PREFIX)
                .tempdir_in(parent);
            let folder = temporary.map_err(DatasetError::io(parent))?;
            let lock = hold(folder.path()).map_err(DatasetError::io(folder.path()))?;
            // Another process may have removed it before it was locked.
            if let Some(lock) = lock.filter(|_| folder.path().is_dir()) {
                return Ok(Self {
                    folder,
                    _lock: lock,
                });
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A folder for temporary files inside, which is removed when the value is dropped.
    fn scratch(&self) -> Result<tempfile::TempDir, DatasetError> {
        tempfile::tempdir_in(self.path()).map_err(DatasetError::io(self.path()))
    }

    /// Write the card and move the dataset to its destination.
    pub(crate) fn finish(
        self,
        info: &CardInfo,
        written: WrittenDataset,
        destination: &Path,
    ) -> Result<WrittenDataset, DatasetError> {
        let sizes = card::split_sizes(self.path())?;
        let text = card::render(info, &written, &sizes);
        write_synced(&self.path().join("README.md"), text.as_bytes())?;
        make_readable(self.path())?;
        replace(self.folder, destination)?;
        Ok(written)
    }
}

/// Copy the input files into the dataset.
pub(crate) fn copy_input_files(
    folder: &Path,
    named: BTreeMap<Digest, TaskFile>,
    store: &ContentStore,
    scrubber: &Scrubber,
    written: &mut WrittenDataset,
) -> Result<(), DatasetError> {
    for (id, file) in named {
        let from = store.path(&id);
        if file.license.is_none() || !from.is_file() {
            continue;
        }
        let bytes = store
            .get(&id)
            .map_err(|error| DatasetError::Setting(error.to_string()))?;
        let scan = scrubber.file(&bytes);
        if !scan.is_clean() {
            let withheld = (id.to_string(), file.name, scan);
            written.scrub.withheld.push(withheld);
            continue;
        }
        let to = folder.join(&id.as_str()[..2]).join(id.as_str());
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).map_err(DatasetError::io(parent))?;
        }
        // Files in a content store never change, so a hard link is enough.
        if fs::hard_link(&from, &to).is_err() {
            fs::write(&to, &bytes).map_err(DatasetError::io(&to))?;
        }
        written.files.0 += 1;
        written.files.1 += bytes.len() as u64;
    }
    Ok(())
}

fn parent(folder: &Path) -> Result<&Path, DatasetError> {
    let parent = match folder.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => {
            return Err(DatasetError::Setting(format!(
                "a dataset cannot be written to {}: give a folder below it",
                folder.display()
            )));
        }
    };
    fs::create_dir_all(parent).map_err(DatasetError::io(parent))?;
    Ok(parent)
}

/// Remove temporary folders of killed processes.
fn remove_leftovers(parent: &Path) -> Result<(), DatasetError> {
    for entry in fs::read_dir(parent).map_err(DatasetError::io(parent))? {
        let path = entry.map_err(DatasetError::io(parent))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if !name.is_some_and(|name| name.starts_with(TEMPORARY_PREFIX)) {
            continue;
        }
        if let Some(_lock) = hold(&path).map_err(DatasetError::io(&path))? {
            unless_missing(fs::remove_dir_all(&path)).map_err(DatasetError::io(&path))?;
        }
    }
    Ok(())
}

/// Lock a folder until the file is closed. `None` if it does not exist, or if it is in use.
fn hold(folder: &Path) -> io::Result<Option<File>> {
    let file = match File::open(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn unless_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), DatasetError> {
    let mut file = File::create_new(path).map_err(DatasetError::io(path))?;
    file.write_all(bytes).map_err(DatasetError::io(path))?;
    file.sync_all().map_err(DatasetError::io(path))
}

/// Temporary folders are private to their owner; make the dataset readable for others.
fn make_readable(folder: &Path) -> Result<(), DatasetError> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(DatasetError::io(folder))
}

/// Replace the old dataset by the new one. The old one is deleted with the temporary folder.
fn replace(new: tempfile::TempDir, folder: &Path) -> Result<(), DatasetError> {
    match renameat_with(CWD, new.path(), CWD, folder, RenameFlags::EXCHANGE) {
        // Another process may take the old one for a leftover.
        Ok(()) => unless_missing(new.close()).map_err(DatasetError::io(folder)),
        // There is no old dataset.
        Err(Errno::NOENT) => {
            let path = new.keep();
            fs::rename(&path, folder).map_err(DatasetError::io(folder))
        }
        // The file system cannot exchange folders: for a moment the dataset does not exist.
        Err(Errno::INVAL | Errno::NOSYS) => {
            fs::remove_dir_all(folder).map_err(DatasetError::io(folder))?;
            let path = new.keep();
            fs::rename(&path, folder).map_err(DatasetError::io(folder))
        }
        Err(error) => Err(DatasetError::io(folder)(error.into())),
    }
}
