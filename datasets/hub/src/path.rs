//! Files and folders of a repository on the Hub, downloaded into the cache at one commit.

use std::fmt;
use std::path::{Path, PathBuf};

use pybench_run::RunError;
use pybench_types::text;
use tracing::info;

use super::snapshot::{Downloader, check_sizes, commit_of, is_commit};
use super::{Hub, Kind, Repository, hexadecimal};
use sha2::{Digest as _, Sha256};

/// A file or folder on the Hub: `hf://[datasets/]OWNER/NAME[@REVISION][/PATH]`, without `datasets/` of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubPath {
    pub kind: Kind,
    /// `owner/name`.
    pub repository: String,
    /// A commit, branch or tag without a slash; `None` is the newest commit.
    pub revision: Option<String>,
    /// Path in the repository; empty for all of it.
    pub path: String,
}

impl HubPath {
    /// Parses an address.
    ///
    /// # Errors
    /// The expected form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text}: expected hf://[datasets/]OWNER/NAME[@REVISION][/PATH]");
        let rest = text.strip_prefix("hf://").ok_or_else(wrong)?;
        let (kind, rest) = match rest.strip_prefix("datasets/") {
            Some(rest) => (Kind::Dataset, rest),
            None => (Kind::Model, rest),
        };
        let (owner, rest) = rest.split_once('/').ok_or_else(wrong)?;
        let (named, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (name, revision) = match named.split_once('@') {
            Some((name, revision)) => (name, Some(revision)),
            None => (named, None),
        };
        let (repository, path) = (format!("{owner}/{name}"), path.trim_end_matches('/'));
        Repository::check(&repository).map_err(|_| wrong())?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_revision = |text: &str| (1..=200).contains(&text.len()) && text.chars().all(plain);
        match revision.is_none_or(is_revision) && (path.is_empty() || is_inside(path)) {
            true => Ok(Self {
                kind,
                repository,
                revision: revision.map(str::to_owned),
                path: path.to_owned(),
            }),
            false => Err(wrong()),
        }
    }

    /// The revision, if it is a full commit hash, which always names the same bytes.
    pub fn commit(&self) -> Option<&str> {
        self.revision.as_deref().filter(|text| is_commit(text))
    }

    /// The copy of the file or folder below `cache`, which is downloaded if it is missing. A complete one at a full commit needs
    /// no request.
    ///
    /// # Errors
    /// [`RunError::BadInput`] if there is no such repository, revision or path, or it exceeds the size limits; errors of the
    /// Hub.
    pub async fn fetch(&self, cache: &Path) -> Result<PathBuf, RunError> {
        if let Some(copy) = self.commit().and_then(|commit| self.cached(cache, commit)) {
            return Ok(copy);
        }
        let hub = Hub::from_env()?;
        let repository = Repository::new(&hub, self.kind, &self.repository)?;
        let commit = commit_of(&repository, self.revision.as_deref()).await?;
        if let Some(copy) = self.cached(cache, &commit) {
            return Ok(copy);
        }
        self.download(&hub, &repository, &commit, cache).await?;
        let copy = self.cached(cache, &commit);
        copy.ok_or_else(|| RunError::Internal(format!("{self}: the download left no copy")))
    }

    async fn download(
        &self,
        hub: &Hub,
        repository: &Repository<'_>,
        commit: &str,
        cache: &Path,
    ) -> Result<(), RunError> {
        let mut files = repository.tree(commit).await?;
        files.retain(|path, _| self.contains(path) && !is_hidden(path));
        if files.is_empty() {
            return Err(RunError::BadInput(format!(
                "{self}: the repository has no such file or folder at {commit}"
            )));
        }
        if let Some(path) = files.keys().find(|path| !is_inside(path)) {
            return Err(RunError::BadInput(format!(
                "{self}: {path:?} is no path of a file on this machine"
            )));
        }
        check_sizes(&self.to_string(), &files)?;
        let total: u64 = files.values().map(|file| file.size).sum();
        info!(
            "downloading {self}: files: {}, {}",
            files.len(),
            text::size(total)
        );
        let folder = self.folder(cache, commit).join("files");
        let downloader = Downloader {
            service: hub.service(cache)?,
            hub,
            repository,
            commit,
            folder: &folder,
        };
        downloader.files(&files).await?;
        let marker = self.marker(cache, commit);
        let write = || {
            std::fs::create_dir_all(marker.parent().unwrap_or(cache))?;
            std::fs::write(&marker, "")
        };
        write().map_err(RunError::io(marker.display().to_string()))
    }

    /// Whether a file of the repository is the one that is asked for, or below it.
    fn contains(&self, path: &str) -> bool {
        let below = path.strip_prefix(self.path.as_str());
        self.path.is_empty() || below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    fn cached(&self, cache: &Path, commit: &str) -> Option<PathBuf> {
        let copy = self.folder(cache, commit).join("files").join(&self.path);
        let is_complete = self.marker(cache, commit).is_file();
        (is_complete && copy.exists()).then_some(copy)
    }

    fn folder(&self, cache: &Path, commit: &str) -> PathBuf {
        let name = self.repository.replace('/', "--");
        let kind = self.kind.word();
        cache.join("hub/paths").join(kind).join(name).join(commit)
    }

    /// The file that marks a complete download of the path.
    fn marker(&self, cache: &Path, commit: &str) -> PathBuf {
        let id = hexadecimal(&Sha256::digest(self.path.as_bytes()));
        self.folder(cache, commit).join("complete").join(id)
    }
}

impl fmt::Display for HubPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf://{}{}", self.kind.prefix(), self.repository)?;
        if let Some(revision) = &self.revision {
            write!(f, "@{revision}")?;
        }
        match self.path.is_empty() {
            true => Ok(()),
            false => write!(f, "/{}", self.path),
        }
    }
}

/// Whether a path stays below the folder that it is joined to.
fn is_inside(path: &str) -> bool {
    let is_part = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.len() <= 1_024
        && !path.contains(|c: char| c == '\\' || c.is_control())
        && path.split('/').all(is_part)
}

/// Whether a file is one of git or of an editor, such as `.gitattributes`.
fn is_hidden(path: &str) -> bool {
    path.split('/').any(|part| part.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let commit = "a".repeat(40);
        let path = HubPath::parse(&format!("hf://datasets/o/n@{commit}/data/a b.csv")).unwrap();
        assert_eq!(
            (path.kind, path.repository.as_str(), path.path.as_str()),
            (Kind::Dataset, "o/n", "data/a b.csv")
        );
        assert_eq!(path.commit(), Some(commit.as_str()));
        for same in [
            "hf://o/n",
            "hf://o/n@main",
            "hf://datasets/o/n/data",
            "hf://o/n@v1/model.safetensors",
        ] {
            let path = HubPath::parse(same).unwrap();
            assert_eq!((path.to_string().as_str(), path.commit()), (same, None));
        }
        for wrong in [
            "o/n",
            "hf://o",
            "hf://datasets/o",
            "hf://o/n@",
            "hf://o/n@a b",
            "hf://o/n/../x",
            "hf://o/n//x",
            "hf://../n/x",
            "hf://o/n@a?b/x",
        ] {
            let error = HubPath::parse(wrong).unwrap_err();
            assert!(error.contains("expected hf://"), "{error}");
        }
    }

    #[test]
    fn a_path_names_a_file_or_what_is_below_a_folder() {
        let of = |text: &str| HubPath::parse(text).unwrap();
        assert!(of("hf://o/n").contains("a/b"));
        assert!(of("hf://o/n/a").contains("a/b") && of("hf://o/n/a/b").contains("a/b"));
        assert!(!of("hf://o/n/a").contains("ab"));
        assert!(is_hidden(".gitattributes") && is_hidden("a/.b/c") && !is_hidden("a/b.c"));
        assert!(!is_inside("a/../b") && !is_inside("/a") && !is_inside("a\\b"));
    }

    #[test]
    fn only_a_complete_copy_is_used() {
        let cache = tempfile::tempdir().unwrap();
        let commit = "b".repeat(40);
        let path = HubPath::parse(&format!("hf://datasets/o/n@{commit}/data")).unwrap();
        let copy = path.folder(cache.path(), &commit).join("files/data");
        std::fs::create_dir_all(&copy).unwrap();
        assert_eq!(path.cached(cache.path(), &commit), None);
        let marker = path.marker(cache.path(), &commit);
        std::fs::create_dir_all(marker.parent().unwrap()).unwrap();
        std::fs::write(&marker, "").unwrap();
        assert_eq!(path.cached(cache.path(), &commit), Some(copy));
        let other = HubPath::parse(&format!("hf://datasets/o/n@{commit}/other")).unwrap();
        assert_eq!(other.cached(cache.path(), &commit), None);
    }
}
