//! Dataset repositories of the Hugging Face Hub: listed at one commit, fetched file by file into the
//! cache that Python's `huggingface_hub` uses too. What was listed once can be used without network.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hf_hub::repository::{RepoTreeEntry, RepoTypeDataset};
use hf_hub::{HFClient, HFClientSync, HFError, HFRepositorySync, split_id};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::source::DataFile;
use crate::model::read_bounded;

/// Most entries of a repository.
const ENTRIES: usize = 1_000_000;
/// Most bytes of a listing kept for use without network.
const LISTING_BYTES: u64 = 256 << 20;
/// Most bytes of one file.
const FILE_BYTES: u64 = 64 << 30;

/// Why a repository cannot be used.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum HubError {
    #[error("{0} is no repository's name: it has the form owner/name")]
    Name(String),
    #[error("{repository}@{revision}: {reason}")]
    Unreachable {
        repository: String,
        revision: String,
        reason: String,
    },
    #[error(
        "{repository}: {path} has {found} bytes, not the {wanted} listed; delete it from the cache and try again"
    )]
    Size {
        repository: String,
        path: String,
        found: u64,
        wanted: u64,
    },
    #[error("{repository}: {path}: {reason}")]
    File {
        repository: String,
        path: String,
        reason: String,
    },
}

/// The files of a repository at one commit.
#[derive(Debug, Serialize, Deserialize)]
struct Listing {
    repository: String,
    commit: String,
    files: Vec<Entry>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Entry {
    path: String,
    size: u64,
}

/// A repository at one commit.
pub(super) struct Snapshot {
    listing: Listing,
    handle: Arc<HFRepositorySync<RepoTypeDataset>>,
}

/// A file of a repository, fetched when it is needed.
#[derive(Clone)]
pub(super) struct RemoteFile {
    repository: String,
    commit: String,
    entry: Entry,
    handle: Arc<HFRepositorySync<RepoTypeDataset>>,
}

impl std::fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}/{}", self.repository, self.commit, self.entry.path)
    }
}

/// Lists a repository. Without network, or where `HF_HUB_OFFLINE` is set, as it was listed last.
pub(super) fn snapshot(repository: &str, revision: &str) -> Result<Snapshot, HubError> {
    if !is_name(repository) {
        return Err(HubError::Name(repository.into()));
    }
    let failed = |reason: String| HubError::Unreachable {
        repository: repository.into(),
        revision: revision.into(),
        reason,
    };
    let client = HFClient::builder().build();
    let client = client.map_err(|error| failed(error.to_string()))?;
    let record = record_of(client.cache_dir(), repository, revision);
    let client = HFClientSync::from_inner(client).map_err(|error| failed(error.to_string()))?;
    let (owner, name) = split_id(repository);
    let handle = Arc::new(client.dataset(owner, name));
    let asked = match offline() {
        true => Err("HF_HUB_OFFLINE is set".to_owned()),
        false => list(&handle, repository, revision).map_err(|error| match error {
            HFError::AuthRequired { .. } | HFError::Forbidden { .. } => {
                format!("{error}; log in with `hf auth login` or set HF_TOKEN, and accept the repository's terms")
            }
            error => error.to_string(),
        }),
    };
    let listing = match asked {
        Ok(listing) => {
            // Only a convenience for later: a full disk does not stop a run here.
            let _ = keep(&record, &listing);
            listing
        }
        Err(reason) => {
            let known = read_bounded(&record, LISTING_BYTES).ok();
            let known = known.and_then(|bytes| serde_json::from_slice::<Listing>(&bytes).ok());
            let Some(listing) = known.filter(|l| l.repository == repository) else {
                return Err(failed(reason));
            };
            eprintln!(
                "note: {repository}@{revision}: {reason}; using commit {} of the cache",
                listing.commit
            );
            listing
        }
    };
    match listing.files.iter().find(|entry| !is_inside(&entry.path)) {
        Some(entry) => Err(failed(format!(
            "lists a file outside of itself: {:?}",
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
        let reason = format!("{repository} names no commit");
        return Err(HFError::InvalidParameter(reason));
    }
    let tree = handle.list_tree().revision(commit.clone()).recursive(true);
    let tree = tree.limit(ENTRIES).send()?;
    let file = |entry| match entry {
        RepoTreeEntry::File { path, size, .. } => Some(Entry { path, size }),
        _ => None,
    };
    Ok(Listing {
        repository: repository.into(),
        commit,
        files: tree.into_iter().filter_map(file).collect(),
    })
}

/// Where the last listing of a revision is kept.
fn record_of(cache: &Path, repository: &str, revision: &str) -> PathBuf {
    let name = blake3::hash(format!("{repository}@{revision}").as_bytes()).to_hex();
    let folder = cache.join("pybench-listings");
    folder.join(format!("{}.json", &name[..32]))
}

fn keep(record: &Path, listing: &Listing) -> std::io::Result<()> {
    let folder = record.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut file, listing)?;
    file.persist(record)?;
    Ok(())
}

fn offline() -> bool {
    let value = std::env::var("HF_HUB_OFFLINE").unwrap_or_default();
    ["1", "ON", "YES", "TRUE"].contains(&value.to_ascii_uppercase().as_str())
}

pub(crate) fn is_name(repository: &str) -> bool {
    let fits = |part: &str| {
        let letter = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        (1..=96).contains(&part.len()) && part.chars().all(letter) && !part.starts_with('.')
    };
    repository
        .split_once('/')
        .is_some_and(|(owner, name)| fits(owner) && fits(name))
}

/// Whether a path stays in its folder.
fn is_inside(path: &str) -> bool {
    let part = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.len() <= 1024 && !path.contains(['\\', '\0']) && path.split('/').all(part)
}

impl Snapshot {
    /// Its commit.
    pub(super) fn commit(&self) -> &str {
        &self.listing.commit
    }

    /// The files whose paths are wanted.
    pub(super) fn files(&self, wanted: impl Fn(&String) -> bool) -> Vec<DataFile> {
        let entries = self
            .listing
            .files
            .iter()
            .filter(|entry| wanted(&entry.path));
        let file = |entry: &Entry| {
            DataFile::Remote(RemoteFile {
                repository: self.listing.repository.clone(),
                commit: self.listing.commit.clone(),
                entry: entry.clone(),
                handle: Arc::clone(&self.handle),
            })
        };
        entries.map(file).collect()
    }
}

impl RemoteFile {
    /// Its path in the repository.
    pub(super) fn name(&self) -> &str {
        &self.entry.path
    }

    /// Its place on this machine; fetched where it is not in the cache.
    pub(super) fn fetch(&self) -> Result<PathBuf, HubError> {
        let (repository, path) = (self.repository.clone(), self.entry.path.clone());
        let failed = |reason: String| HubError::File {
            repository: repository.clone(),
            path: path.clone(),
            reason,
        };
        if self.entry.size > FILE_BYTES {
            return Err(failed(format!(
                "{} bytes, more than {FILE_BYTES}",
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
        // A commit does not change: what the cache has of it needs no question to the Hub.
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

/// Models of the Hub.
pub(crate) mod hub_model {
    use super::{HFClient, HubError, PathBuf, offline, split_id};

    pub(crate) use super::is_name;

    /// What a model directory needs: not the weights in other formats that many repositories carry.
    const NEEDED: [&str; 4] = ["*.json", "model*.safetensors", "*.jinja", "merges.txt"];

    /// The directory of a model, fetched where the cache does not have it. A gated model needs
    /// `HF_TOKEN`.
    pub(crate) fn fetch(repository: &str) -> Result<PathBuf, HubError> {
        let failed = |error: hf_hub::HFError| HubError::Unreachable {
            repository: repository.into(),
            revision: "main".into(),
            reason: error.to_string(),
        };
        let client = HFClient::builder().build_sync().map_err(failed)?;
        let (owner, name) = split_id(repository);
        let model = client.model(owner, name);
        let snapshot = |cached: bool| {
            let patterns = NEEDED.map(str::to_owned).to_vec();
            let request = model.snapshot_download().allow_patterns(patterns);
            request.local_files_only(cached).send()
        };
        if offline() {
            return snapshot(true).map_err(failed);
        }
        snapshot(false).or_else(|error| snapshot(true).map_err(|_| failed(error)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_paths_that_lead_elsewhere_are_refused() {
        assert!(is_name("xingyaoww/code-act") && is_name("m-a-p/Code-Feedback"));
        for name in ["a", "a/b/c", "../b", "a/..", "a/b?x", "", "a/"] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_inside("data/codeact-00000-of-00001.parquet"));
        for path in ["/etc/passwd", "../x", "a/../b", "a//b", "a\\b", "", "./a"] {
            assert!(!is_inside(path), "{path}");
        }
    }
}
