//! Dataset repositories of the Hugging Face Hub: listed at one commit, and downloaded file by file into the
//! cache of Python's `huggingface_hub`. The listing is cached too, for use without network.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hf_hub::repository::{RepoTreeEntry, RepoTypeDataset};
use hf_hub::{HFClient, HFClientSync, HFError, HFRepositorySync, split_id};
use serde::{Deserialize, Serialize};

use crate::file::read_bounded;
use crate::hub_client::{HubError, is_repo_id, offline};

const MAX_REPO_FILES: usize = 1_000_000;
/// Bytes of a listing that is kept for use without network.
const MAX_LISTING_BYTES: u64 = 256 << 20;
const MAX_FILE_BYTES: u64 = 64 << 30;

/// The files of a repository at one commit; kept in the cache.
#[derive(Debug, Serialize, Deserialize)]
struct Listing {
    repository: String,
    commit: String,
    files: Vec<RepoFile>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct RepoFile {
    path: String,
    size: u64,
}

pub(crate) struct Snapshot {
    listing: Listing,
    handle: Arc<HFRepositorySync<RepoTypeDataset>>,
}

/// A file of a repository; downloaded when it is needed.
#[derive(Clone)]
pub(crate) struct RemoteFile {
    repository: String,
    commit: String,
    entry: RepoFile,
    handle: Arc<HFRepositorySync<RepoTypeDataset>>,
}

impl std::fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}/{}", self.repository, self.commit, self.entry.path)
    }
}

/// Lists a repository. Without network, or with `HF_HUB_OFFLINE`, returns the last listing.
pub(crate) fn snapshot(repository: &str, revision: &str) -> Result<Snapshot, HubError> {
    if !is_repo_id(repository) {
        return Err(HubError::RepoId(repository.into()));
    }
    let failed = |reason: String| HubError::Unreachable {
        repository: repository.into(),
        revision: revision.into(),
        reason,
    };
    let client = HFClient::builder().build();
    let client = client.map_err(|error| failed(error.to_string()))?;
    let record = listing_path(client.cache_dir(), repository, revision);
    let client = HFClientSync::from_inner(client).map_err(|error| failed(error.to_string()))?;
    let (owner, name) = split_id(repository);
    let handle = Arc::new(client.dataset(owner, name));
    let listed = match offline() {
        true => Err("HF_HUB_OFFLINE is set".to_owned()),
        false => list(&handle, repository, revision).map_err(|error| match error {
            HFError::AuthRequired { .. } | HFError::Forbidden { .. } => {
                format!("{error}; log in with `hf auth login` or set HF_TOKEN, and accept the repository's terms")
            }
            error => error.to_string(),
        }),
    };
    let listing = match listed {
        Ok(listing) => {
            // Needed only for later runs without network: a full disk is no error here.
            let _ = store_listing(&record, &listing);
            listing
        }
        Err(reason) => {
            let known = read_bounded(&record, MAX_LISTING_BYTES).ok();
            let known = known.and_then(|bytes| serde_json::from_slice::<Listing>(&bytes).ok());
            let Some(listing) = known.filter(|l| l.repository == repository) else {
                return Err(failed(reason));
            };
            eprintln!(
                "note: {repository}@{revision}: {reason}; using commit {} from the cache",
                listing.commit
            );
            listing
        }
    };
    match listing.files.iter().find(|entry| !is_inside(&entry.path)) {
        Some(entry) => Err(failed(format!(
            "lists a file with an unsafe path: {:?}",
            entry.path
        ))),
        None => Ok(Snapshot { listing, handle }),
    }
}

fn list(
    handle: &HFRepositorySync<RepoTypeDataset>,
    repository: &str,
    revision: &str,
) -> Result<Listing, HFError> {
    let info = handle.info().revision(revision).send()?;
    let commit = info.sha.unwrap_or_default();
    if commit.len() != 40 || !commit.bytes().all(|b| b.is_ascii_hexdigit()) {
        let reason = format!("{repository} has no commit id");
        return Err(HFError::InvalidParameter(reason));
    }
    let tree = handle.list_tree().revision(commit.clone()).recursive(true);
    let tree = tree.limit(MAX_REPO_FILES).send()?;
    let file = |entry| match entry {
        RepoTreeEntry::File { path, size, .. } => Some(RepoFile { path, size }),
        _ => None,
    };
    Ok(Listing {
        repository: repository.into(),
        commit,
        files: tree.into_iter().filter_map(file).collect(),
    })
}

/// Where the last listing of a revision is stored.
fn listing_path(cache: &Path, repository: &str, revision: &str) -> PathBuf {
    let name = blake3::hash(format!("{repository}@{revision}").as_bytes()).to_hex();
    let folder = cache.join("pybench-listings");
    folder.join(format!("{}.json", &name[..32]))
}

fn store_listing(record: &Path, listing: &Listing) -> std::io::Result<()> {
    let folder = record.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut file, listing)?;
    file.persist(record)?;
    Ok(())
}

/// Whether a path stays inside the repository.
fn is_inside(path: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.len() <= 1024 && !path.contains(['\\', '\0']) && path.split('/').all(part)
}

impl Snapshot {
    pub(crate) fn commit(&self) -> &str {
        &self.listing.commit
    }

    /// The files whose paths the filter accepts.
    pub(crate) fn files(&self, filter: impl Fn(&String) -> bool) -> Vec<RemoteFile> {
        let entries = self
            .listing
            .files
            .iter()
            .filter(|entry| filter(&entry.path));
        let file = |entry: &RepoFile| RemoteFile {
            repository: self.listing.repository.clone(),
            commit: self.listing.commit.clone(),
            entry: entry.clone(),
            handle: Arc::clone(&self.handle),
        };
        entries.map(file).collect()
    }
}

impl RemoteFile {
    pub(crate) fn name(&self) -> &str {
        &self.entry.path
    }

    /// The path of the file in the local cache; downloads it if it is missing there.
    pub(crate) fn fetch(&self) -> Result<PathBuf, HubError> {
        let (repository, path) = (self.repository.clone(), self.entry.path.clone());
        let failed = |reason: String| HubError::File {
            repository: repository.clone(),
            path: path.clone(),
            reason,
        };
        if self.entry.size > MAX_FILE_BYTES {
            return Err(failed(format!(
                "{} bytes, more than {MAX_FILE_BYTES}",
                self.entry.size
            )));
        }
        let download = |cached: bool| {
            let request = self.handle.download_file().filename(&path);
            request
                .revision(&self.commit)
                .local_files_only(cached)
                .send()
        };
        // The files of a commit never change, so a cached file needs no request.
        let file = match download(true) {
            Ok(file) => file,
            Err(error) if offline() => return Err(failed(error.to_string())),
            Err(_) => download(false).map_err(|error| failed(error.to_string()))?,
        };
        let found = fs::metadata(&file)
            .map_err(|error| failed(error.to_string()))?
            .len();
        match found == self.entry.size {
            true => Ok(file),
            false => Err(HubError::Size {
                repository,
                path,
                found,
                wanted: self.entry.size,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_paths_are_rejected() {
        assert!(is_inside("data/codeact-00000-of-00001.parquet"));
        for path in ["/etc/passwd", "../x", "a/../b", "a//b", "a\\b", "", "./a"] {
            assert!(!is_inside(path), "{path}");
        }
    }
}
