//! The bytes behind the digests that rows name: from folders on this machine, from origins otherwise.

use std::path::{Path, PathBuf};

use pybench::id::Digest;
use pybench::run::project::project_root;
use pybench::run::{ContentStore, RunError, RunFolder, default_cache_dir};
use pybench::task::TaskFile;

use super::VerifyArgs;
use crate::crawl::source::origin;

/// Largest file taken.
const LARGEST: u64 = 4 << 30;

/// Files by digest.
pub(super) struct Files {
    store: ContentStore,
    elsewhere: Vec<ContentStore>,
    offline: bool,
    project: PathBuf,
    /// With what was downloaded.
    cache: PathBuf,
}

impl Files {
    /// Files that come from those folders first.
    pub(super) fn new(
        state: &RunFolder,
        folders: &[PathBuf],
        args: &VerifyArgs,
    ) -> Result<Self, RunError> {
        let elsewhere = folders.iter().map(|folder| super::store(folder));
        Ok(Self {
            store: state.store().clone(),
            elsewhere: elsewhere.collect::<Result<_, _>>()?,
            offline: args.offline,
            project: project_root(Path::new(".")).unwrap_or_default(),
            cache: args.downloads.clone().unwrap_or_else(default_cache_dir),
        })
    }

    /// Where all of them lie once [`Files::get`] has them.
    pub(super) fn store(&self) -> &ContentStore {
        &self.store
    }

    /// Where that file lies.
    pub(super) fn path(&self, id: &Digest) -> PathBuf {
        self.store.path(id)
    }

    /// See to it that the file lies in the store; its bytes are what the digest says.
    ///
    /// # Errors
    /// Why it cannot be had, in words.
    pub(super) async fn get(&self, file: &TaskFile) -> Result<(), String> {
        if self
            .take(&self.store.path(&file.id), &file.id)
            .is_ok_and(|there| there)
        {
            return Ok(());
        }
        let mut wrong = None;
        for store in &self.elsewhere {
            match self.take(&store.path(&file.id), &file.id) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(why) => wrong = Some(why),
            }
        }
        if self.offline {
            let nowhere = || "not on this machine (and --offline)".to_owned();
            return Err(wrong.unwrap_or_else(nowhere));
        }
        let fetched = origin::fetch(&file.origin, &self.cache, &self.project).await;
        let candidates = fetched.map_err(|why| wrong.clone().unwrap_or(why))?;
        for bytes in candidates {
            if Digest::of_bytes(&bytes) == file.id {
                self.store.put(&bytes).map_err(|error| error.to_string())?;
                return Ok(());
            }
        }
        let other = || format!("{} has other bytes now", file.origin);
        Err(wrong.unwrap_or_else(other))
    }

    /// Take a file from there: false where there is none.
    fn take(&self, path: &Path, id: &Digest) -> Result<bool, String> {
        let Ok(metadata) = std::fs::metadata(path) else {
            return Ok(false);
        };
        let shown = path.display();
        if !metadata.is_file() || metadata.len() > LARGEST {
            return Err(format!("{shown} is no file of at most {LARGEST} bytes"));
        }
        let bytes = std::fs::read(path).map_err(|error| format!("{shown}: {error}"))?;
        if Digest::of_bytes(&bytes) != *id {
            return Err(format!("{shown} has other bytes than its digest says"));
        }
        self.store.put(&bytes).map_err(|error| error.to_string())?;
        Ok(true)
    }
}

/// Files below a folder of a dataset whose bytes are not those that their names say.
pub(super) fn changed(folder: &Path) -> Result<Vec<String>, RunError> {
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
            let path = file.map_err(io(&part))?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let mut hasher = blake3::Hasher::new();
            let opened = std::fs::File::open(&path).map_err(io(&path))?;
            hasher.update_reader(opened).map_err(io(&path))?;
            if hasher.finalize().to_hex().as_str() != name {
                changed.push(name);
            }
        }
    }
    changed.sort();
    Ok(changed)
}
