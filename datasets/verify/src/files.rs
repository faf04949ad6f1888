//! Provides the input files of rows: from local folders or a bucket, otherwise from their origins.

use std::io::Read;
use std::path::{Path, PathBuf};

use pybench_files::{open_regular, read_regular};
use pybench_interpreter::default_cache_dir;
use pybench_run::project::project_root;
use pybench_run::{ContentStore, RunError, RunFolder};
use pybench_types::id::Digest;
use pybench_types::task::TaskFile;

use super::VerifyArgs;
use super::location::DatasetLocation;
use pybench_net::origin;

/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// Finds input files by digest and copies them to the store of the run folder.
pub(super) struct InputFiles {
    store: ContentStore,
    sources: Vec<ContentStore>,
    /// The same folder as `store`, filled from a bucket.
    bucket: ContentStore,
    offline: bool,
    project: PathBuf,
    /// Cache folder for downloads.
    cache: PathBuf,
}

impl InputFiles {
    /// Use the folders first, then the bucket, then the origins of the files.
    pub(super) fn new(
        state: &RunFolder,
        location: &DatasetLocation,
        args: &VerifyArgs,
    ) -> Result<Self, RunError> {
        let sources = location.stores.iter().map(|folder| super::store(folder));
        let store = state.store().clone();
        Ok(Self {
            bucket: store.clone().with_remote(location.bucket.clone()),
            store,
            sources: sources.collect::<Result<_, _>>()?,
            offline: args.offline,
            project: project_root(Path::new(".")).unwrap_or_default(),
            cache: args.downloads.clone().unwrap_or_else(default_cache_dir),
        })
    }

    /// The store with all files that [`InputFiles::get`] provided.
    pub(super) fn store(&self) -> &ContentStore {
        &self.store
    }

    /// Make the file available in the store. Its contents are checked against its digest.
    ///
    /// # Errors
    /// A message that says why the file is not available.
    pub(super) async fn get(&self, file: &TaskFile) -> Result<(), String> {
        if self
            .copy_from(&self.store.path(&file.id), &file.id)
            .is_ok_and(|found| found)
        {
            return Ok(());
        }
        let mut problem = None;
        for store in &self.sources {
            match self.copy_from(&store.path(&file.id), &file.id) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(why) => problem = Some(why),
            }
        }
        match self.bucket.fetch_remote(&file.id, MAX_FILE_BYTES) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(error) => problem = Some(error.to_string()),
        }
        if self.offline {
            let nowhere = || "not on this machine, and --offline is set".to_owned();
            return Err(problem.unwrap_or_else(nowhere));
        }
        if file.derived_from.is_some() {
            let part = || {
                format!(
                    "a part of {}, which the dataset does not contain",
                    file.origin
                )
            };
            return Err(problem.unwrap_or_else(part));
        }
        let fetched = origin::fetch(&file.origin, &self.cache, &self.project).await;
        let candidates = fetched.map_err(|why| problem.clone().unwrap_or(why))?;
        for bytes in candidates {
            if Digest::of_bytes(&bytes) == file.id {
                self.store.put(&bytes).map_err(|error| error.to_string())?;
                return Ok(());
            }
        }
        let other = || format!("{} has changed", file.origin);
        Err(problem.unwrap_or_else(other))
    }

    /// Copy a file to the store. Returns false if it does not exist.
    fn copy_from(&self, path: &Path, id: &Digest) -> Result<bool, String> {
        if !path.exists() {
            return Ok(false);
        }
        let shown = path.display();
        let bytes =
            read_regular(path, MAX_FILE_BYTES).map_err(|error| format!("{shown}: {error}"))?;
        if Digest::of_bytes(&bytes) != *id {
            return Err(format!("{shown}: contents do not match its digest"));
        }
        self.store.put(&bytes).map_err(|error| error.to_string())?;
        Ok(true)
    }
}

/// Whether this is a regular file of bounded size with this digest.
fn has_digest(path: &Path, digest: &str) -> bool {
    let mut hasher = blake3::Hasher::new();
    let read = open_regular(path).and_then(|file| {
        hasher.update_reader(file.take(MAX_FILE_BYTES))?;
        Ok(())
    });
    read.is_ok() && hasher.finalize().to_hex().as_str() == digest
}

/// Names of files in a dataset's content store whose contents do not match their names.
pub(super) fn changed_files(folder: &Path) -> Result<Vec<String>, RunError> {
    let io = |path: &Path| RunError::io(path.display().to_string());
    let mut changed = Vec::new();
    if !folder.is_dir() {
        return Ok(changed);
    }
    for part in std::fs::read_dir(folder).map_err(io(folder))? {
        let part = part.map_err(io(folder))?.path();
        if !part.is_dir() {
            continue;
        }
        for file in std::fs::read_dir(&part).map_err(io(&part))? {
            let file = file.map_err(io(&part))?;
            let name = file.file_name().to_string_lossy().into_owned();
            if !has_digest(&file.path(), &name) {
                changed.push(name);
            }
        }
    }
    changed.sort();
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_that_are_not_regular_count_as_changed_and_do_not_block() {
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join("ab");
        std::fs::create_dir(&part).unwrap();
        let right = blake3::hash(b"text").to_hex();
        std::fs::write(part.join(right.as_str()), "text").unwrap();
        std::fs::write(part.join("wrong"), "text").unwrap();
        symlink("/dev/zero", part.join("zero")).unwrap();
        let fifo = std::process::Command::new("mkfifo")
            .arg(part.join("pipe"))
            .status();
        assert!(fifo.unwrap().success());
        let changed = changed_files(folder.path()).unwrap();
        assert_eq!(changed, ["pipe", "wrong", "zero"]);
    }
}
