//! Downloads a dataset at one commit into the cache: rows, card, proof and input files.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use pybench_run::RunError;
use tracing::info;

use super::client::MAX_DOWNLOADS;
use super::download::download;
use super::{Hub, Kind, RemoteFile, Repository, UploadFile};
use pybench_net::Limits;
use pybench_net::{Download, Service};

/// Largest file, in bytes.
const MAX_FILE: u64 = 16 << 30;
/// Largest dataset, in bytes.
const MAX_TOTAL: u64 = 1 << 40;
const MAX_FILES: usize = 1_000_000;
/// Largest file that the Hub stores in git, in bytes. The Hub itself accepts at most ten million bytes.
const MAX_SMALL_FILE: u64 = 64 << 20;
/// Marker file of a complete download.
const COMPLETE: &str = ".complete";

/// A dataset on the Hub, written as `OWNER/NAME` or `hf://datasets/OWNER/NAME`, with an optional `@REVISION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetRef {
    /// `owner/name`.
    pub name: String,
    /// A commit, branch or tag; `None` is the newest commit.
    pub revision: Option<String>,
}

impl DatasetRef {
    /// Parses the name of a dataset.
    ///
    /// # Errors
    /// The expected form.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "expected [hf://datasets/]OWNER/NAME[@REVISION]";
        let wrong = || format!("{text}: {FORM}");
        let rest = match text.strip_prefix("hf://") {
            Some(rest) => rest.strip_prefix("datasets/").ok_or_else(wrong)?,
            None => text,
        };
        let (name, revision) = match rest.split_once('@') {
            Some((name, revision)) => (name, Some(revision)),
            None => (rest, None),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let is_revision = |text: &str| (1..=200).contains(&text.len()) && text.chars().all(plain);
        Repository::check(name).map_err(|_| wrong())?;
        match revision.is_none_or(is_revision) {
            true => Ok(Self {
                name: name.to_owned(),
                revision: revision.map(str::to_owned),
            }),
            false => Err(wrong()),
        }
    }

    /// The revision, if it is a full commit hash.
    fn commit(&self) -> Option<&str> {
        self.revision.as_deref().filter(|text| is_commit(text))
    }
}

impl fmt::Display for DatasetRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let revision = self.revision.as_deref();
        let revision = revision.map(|revision| format!("@{revision}"));
        write!(f, "datasets/{}{}", self.name, revision.unwrap_or_default())
    }
}

/// A downloaded dataset in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The folder with `README.md` and `data/`.
    pub folder: PathBuf,
    pub commit: String,
}

impl Snapshot {
    /// Downloads the dataset below `cache`. Files that are in the cache are not downloaded again, and a complete
    /// commit needs no request at all. With `offline`, no request is made.
    ///
    /// # Errors
    /// Errors of the Hub; [`RunError::BadInput`] if it is not a dataset of pybench or exceeds the size limits.
    pub async fn fetch(pin: &DatasetRef, cache: &Path, offline: bool) -> Result<Self, RunError> {
        if let Some(commit) = pin.commit() {
            let snapshot = Self::at(pin, cache, commit);
            if snapshot.is_complete() {
                return Ok(snapshot);
            }
        }
        if offline {
            return Err(RunError::BadInput(format!(
                "{pin} is not on this machine, and --offline forbids downloads; only full commits can be found \
                 in the cache: hf://datasets/OWNER/NAME@COMMIT"
            )));
        }
        let hub = Hub::from_env()?;
        let repository = Repository::new(&hub, Kind::Dataset, &pin.name)?;
        let commit = commit_of(&repository, pin.revision.as_deref()).await?;
        let snapshot = Self::at(pin, cache, &commit);
        if !snapshot.is_complete() {
            snapshot.download(&hub, &repository, cache).await?;
        }
        Ok(snapshot)
    }

    fn at(pin: &DatasetRef, cache: &Path, commit: &str) -> Self {
        let name = pin.name.replace('/', "--");
        Self {
            folder: cache.join("hub/datasets").join(name).join(commit),
            commit: commit.to_owned(),
        }
    }

    fn is_complete(&self) -> bool {
        self.folder.join(COMPLETE).is_file()
    }

    /// Downloads the missing files.
    async fn download(
        &self,
        hub: &Hub,
        repository: &Repository<'_>,
        cache: &Path,
    ) -> Result<(), RunError> {
        let shown = format!("{} at {}", repository.shown(), self.commit);
        let mut files = repository.tree(&self.commit).await?;
        files.retain(|path, _| is_dataset_file(path));
        check_limits(&shown, &files)?;
        let downloader = Downloader {
            service: hub.service(cache)?,
            hub,
            repository,
            commit: &self.commit,
            folder: &self.folder,
        };
        downloader.files(&files).await?;
        let path = self.folder.join(COMPLETE);
        std::fs::write(&path, "").map_err(RunError::io(path.display().to_string()))
    }
}

/// The commit of a revision, or the newest commit.
///
/// # Errors
/// [`RunError::BadInput`] if there is none; errors of the Hub.
pub(super) async fn commit_of(
    repository: &Repository<'_>,
    revision: Option<&str>,
) -> Result<String, RunError> {
    let about = repository.about_at(revision).await?;
    let commit = about.map(|about| about.sha).filter(|sha| is_commit(sha));
    commit.ok_or_else(|| {
        let at = revision.map(|revision| format!("@{revision}"));
        RunError::BadInput(format!(
            "{}{}: no such {} or revision on the Hub; if it is private or gated, set HF_TOKEN to a token with read access",
            repository.shown(),
            at.unwrap_or_default(),
            repository.kind.word()
        ))
    })
}

/// Downloads files of a repository at a commit into a folder.
pub(super) struct Downloader<'a> {
    pub(super) service: Service,
    pub(super) hub: &'a Hub,
    pub(super) repository: &'a Repository<'a>,
    pub(super) commit: &'a str,
    pub(super) folder: &'a Path,
}

impl Downloader<'_> {
    /// Downloads the files that the folder does not have, several at a time.
    ///
    /// # Errors
    /// A download failed; the folder cannot be written.
    pub(super) async fn files(&self, files: &BTreeMap<String, RemoteFile>) -> Result<(), RunError> {
        let each = files.iter().map(|(path, remote)| self.file(path, remote));
        stream::iter(each)
            .buffer_unordered(MAX_DOWNLOADS)
            .try_collect::<()>()
            .await
    }

    /// Downloads a file unless it exists. A file is moved into place only when it is complete and verified, so
    /// an existing one is not checked again.
    async fn file(&self, path: &str, remote: &RemoteFile) -> Result<(), RunError> {
        let to = self.folder.join(path);
        if to.is_file() {
            return Ok(());
        }
        let (commit, name) = (self.commit, &self.repository.name);
        let url = self.hub.file_url(self.repository.kind, name, commit, path);
        let limits = Limits {
            file: remote.size,
            total: remote.size,
        };
        let shown = format!("{path} of {}", self.repository.shown());
        let download = download(&self.service, &url, &remote.expected(), limits).await;
        let mut download = download.map_err(|error| {
            let why = error.into_message();
            RunError::Endpoint(format!(
                "{shown}: {why}; run the same command again to continue"
            ))
        })?;
        let io = |error: io::Error| RunError::io(to.display().to_string())(error);
        if !remote.is_large() && !is_blob(&mut download, path, remote).map_err(io)? {
            download.discard();
            return Err(RunError::Endpoint(format!(
                "{shown} has other bytes than its listing says, at {commit}"
            )));
        }
        download.move_to(&to).map_err(io)?;
        info!("{path} ({} bytes)", remote.size);
        Ok(())
    }
}

/// Whether the download is the git blob of the listing.
fn is_blob(download: &mut Download, path: &str, kept: &RemoteFile) -> io::Result<bool> {
    let mut bytes = Vec::new();
    download
        .file()?
        .take(MAX_SMALL_FILE + 1)
        .read_to_end(&mut bytes)?;
    Ok(kept.matches(&UploadFile::of_bytes(path, bytes)?))
}

/// Whether a text is a commit hash, and therefore safe in a path.
pub(super) fn is_commit(text: &str) -> bool {
    (40..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether a path is part of a dataset: a shard, the card, the proof, or an input file under its digest.
pub(super) fn is_dataset_file(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_shard = |name: &str| {
        name.len() <= 200
            && name.ends_with(".parquet")
            && !name.starts_with('.')
            && name.chars().all(plain)
    };
    match path.split('/').collect::<Vec<_>>()[..] {
        ["README.md" | "proof.json"] => true,
        [name] | ["data", name] => is_shard(name),
        ["files", part, name] => {
            let digits = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
            name.len() == 64 && name.bytes().all(digits) && part == &name[..2]
        }
        _ => false,
    }
}

fn check_limits(shown: &str, files: &BTreeMap<String, RemoteFile>) -> Result<(), RunError> {
    match files.keys().any(|path| path.ends_with(".parquet")) {
        true => check_sizes(shown, files),
        false => Err(RunError::BadInput(format!(
            "{shown}: not a pybench dataset: it has no data/*.parquet"
        ))),
    }
}

/// Checks number and sizes of files before any is downloaded.
pub(super) fn check_sizes(
    shown: &str,
    files: &BTreeMap<String, RemoteFile>,
) -> Result<(), RunError> {
    let bad = |text: String| Err(RunError::BadInput(format!("{shown}: {text}")));
    if files.len() > MAX_FILES {
        return bad(format!(
            "{} files, more than the limit of {MAX_FILES}",
            files.len()
        ));
    }
    let large = |kept: &RemoteFile| {
        kept.size
            > if kept.is_large() {
                MAX_FILE
            } else {
                MAX_SMALL_FILE
            }
    };
    if let Some((path, kept)) = files.iter().find(|(_, kept)| large(kept)) {
        return bad(format!(
            "{path} has {} bytes, more than the limit",
            kept.size
        ));
    }
    let all = files
        .values()
        .map(|kept| u128::from(kept.size))
        .sum::<u128>();
    match all > u128::from(MAX_TOTAL) {
        true => bad(format!("{all} bytes, more than the limit of {MAX_TOTAL}")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dataset_names_are_parsed() {
        let pin = |text: &str| DatasetRef::parse(text).map(|pin| (pin.name, pin.revision));
        let plain = ("o/n".to_owned(), None);
        assert_eq!(pin("o/n"), Ok(plain.clone()));
        assert_eq!(pin("hf://datasets/o/n"), Ok(plain));
        let tagged = ("o/n".to_owned(), Some("refs/pr/1".to_owned()));
        assert_eq!(pin("hf://datasets/o/n@refs/pr/1"), Ok(tagged));
        for wrong in [
            "n", "o/n/m", "hf://o/n", "o/n@", "o/n@a b", "../n", "o/n@a?b", "", "./n",
        ] {
            let error = pin(wrong).unwrap_err();
            assert!(error.contains("expected [hf://datasets/]"), "{error}");
        }
        let whole = "a".repeat(40);
        let pinned = DatasetRef::parse(&format!("o/n@{whole}")).unwrap();
        assert_eq!(pinned.commit(), Some(whole.as_str()));
        assert_eq!(DatasetRef::parse("o/n@main").unwrap().commit(), None);
        assert_eq!(pinned.to_string(), format!("datasets/o/n@{whole}"));
    }

    #[test]
    fn only_dataset_files_are_downloaded() {
        let digest = "ab".repeat(32);
        for path in [
            "README.md".to_owned(),
            "proof.json".to_owned(),
            "data/train-00000-of-00001.parquet".to_owned(),
            "train.parquet".to_owned(),
            format!("files/ab/{digest}"),
        ] {
            assert!(is_dataset_file(&path), "{path}");
        }
        for path in [
            "data/../x.parquet".to_owned(),
            "../x.parquet".to_owned(),
            "/x.parquet".to_owned(),
            "data/.parquet".to_owned(),
            "data/a\\b.parquet".to_owned(),
            "plots/turns.svg".to_owned(),
            "files/ab/x".to_owned(),
            format!("files/cd/{digest}"),
            format!("files/../{digest}"),
        ] {
            assert!(!is_dataset_file(&path), "{path}");
        }
    }

    #[test]
    fn sizes_are_checked_before_any_download() {
        let kept = |size: u64, large: bool| -> RemoteFile {
            let lfs = format!(r#", "lfs": {{"oid": "x", "size": {size}}}"#);
            let text = format!(
                r#"{{"type": "file", "path": "a", "oid": "x", "size": {size}{}}}"#,
                if large { lfs.as_str() } else { "" }
            );
            let entry: super::super::TreeEntry = serde_json::from_str(&text).unwrap();
            entry.file().unwrap().1
        };
        let of = |files: Vec<(&str, RemoteFile)>| {
            let files = files
                .into_iter()
                .map(|(path, kept)| (path.to_owned(), kept));
            check_limits("o/n", &files.collect()).map_err(|error| error.to_string())
        };
        assert_eq!(of(vec![("data/a.parquet", kept(MAX_FILE, true))]), Ok(()));
        let none = of(vec![("README.md", kept(1, false))]).unwrap_err();
        assert!(none.contains("no data/*.parquet"), "{none}");
        let large = of(vec![("data/a.parquet", kept(MAX_FILE + 1, true))]).unwrap_err();
        assert!(large.contains("data/a.parquet has"), "{large}");
        let git = [
            ("README.md", kept(MAX_SMALL_FILE + 1, false)),
            ("a.parquet", kept(1, true)),
        ];
        assert!(of(git.to_vec()).unwrap_err().contains("README.md has"));
        let names: Vec<String> = (0..65).map(|n| format!("data/{n}.parquet")).collect();
        let many = names
            .iter()
            .map(|name| (name.as_str(), kept(MAX_FILE, true)));
        assert!(
            of(many.collect())
                .unwrap_err()
                .contains("bytes, more than the")
        );
    }

    #[test]
    fn fuzz_names_and_paths() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            if let Ok(pin) = DatasetRef::parse(&text) {
                let place = Snapshot::at(&pin, Path::new("c"), "0").folder;
                assert_eq!(place.components().count(), 5, "{}", place.display());
            }
            if is_dataset_file(&text) {
                assert!(!text.contains("..") || !text.split('/').any(|part| part == ".."));
            }
        });
    }
}
