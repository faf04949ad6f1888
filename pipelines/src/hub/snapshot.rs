//! A dataset of the Hub on this machine: its rows, card, proof and input files as they are at one commit.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use pybench::run::RunError;
use tracing::info;

use super::client::AT_ONCE;
use super::download::download;
use super::{Content, Hub, Kept, Kind, Repository};
use crate::crawl::source::Limits;
use crate::crawl::source::web::{Parcel, Service};

/// Most bytes of one file.
const FILE: u64 = 16 << 30;
/// Most bytes of all.
const ALL: u64 = 1 << 40;
/// Most files.
const FILES: usize = 1_000_000;
/// Most bytes of a file that the Hub keeps in git itself; it takes no more than ten million.
const SMALL: u64 = 64 << 20;
/// Says that all is there.
const COMPLETE: &str = ".complete";

/// A dataset of the Hub as people name it: `OWNER/NAME` or `hf://datasets/OWNER/NAME`, and `@REVISION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin {
    /// `owner/name`.
    pub name: String,
    /// A commit, branch or tag; otherwise the newest commit.
    pub revision: Option<String>,
}

impl Pin {
    /// Read such a name.
    ///
    /// # Errors
    /// What was expected.
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

    /// The commit, where a whole one is named.
    fn commit(&self) -> Option<&str> {
        self.revision.as_deref().filter(|text| is_commit(text))
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let revision = self.revision.as_deref();
        let revision = revision.map(|revision| format!("@{revision}"));
        write!(f, "datasets/{}{}", self.name, revision.unwrap_or_default())
    }
}

/// A dataset of the Hub in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// With `README.md` and `data/`.
    pub folder: PathBuf,
    /// Whose state it is.
    pub commit: String,
}

impl Snapshot {
    /// The whole dataset below `cache`. What is there already is not asked for again; a commit that is there
    /// whole is not even looked up. `offline` asks nobody.
    ///
    /// # Errors
    /// The refusals of the Hub; [`RunError::BadInput`] for what is no dataset, or a larger one than is taken.
    pub async fn fetch(pin: &Pin, cache: &Path, offline: bool) -> Result<Self, RunError> {
        if let Some(commit) = pin.commit() {
            let there = Self::at(pin, cache, commit);
            if there.is_complete() {
                return Ok(there);
            }
        }
        if offline {
            return Err(RunError::BadInput(format!(
                "{pin} is not on this machine (and --offline); only whole commits are looked for there: \
                 hf://datasets/OWNER/NAME@COMMIT"
            )));
        }
        let hub = Hub::of_this_process()?;
        let repository = Repository::new(&hub, Kind::Dataset, &pin.name)?;
        let about = repository.about_at(pin.revision.as_deref()).await?;
        let commit = about.map(|about| about.sha).filter(|sha| is_commit(sha));
        let commit = commit.ok_or_else(|| {
            RunError::BadInput(format!(
                "{pin}: the Hub has no such dataset or revision, or not for us: HF_TOKEN has to hold a token \
                 that may read it"
            ))
        })?;
        let there = Self::at(pin, cache, &commit);
        if !there.is_complete() {
            there.complete(&hub, &repository, cache).await?;
        }
        Ok(there)
    }

    fn at(pin: &Pin, cache: &Path, commit: &str) -> Self {
        let name = pin.name.replace('/', "--");
        Self {
            folder: cache.join("hub/datasets").join(name).join(commit),
            commit: commit.to_owned(),
        }
    }

    fn is_complete(&self) -> bool {
        self.folder.join(COMPLETE).is_file()
    }

    /// Fetch what is missing.
    async fn complete(
        &self,
        hub: &Hub,
        repository: &Repository<'_>,
        cache: &Path,
    ) -> Result<(), RunError> {
        let shown = format!("{} at {}", repository.shown(), self.commit);
        let mut files = repository.tree(&self.commit).await?;
        files.retain(|path, _| is_of_a_dataset(path));
        bounded(&shown, &files)?;
        let fetching = Fetching {
            service: hub.service(cache)?,
            hub,
            repository,
            snapshot: self,
        };
        let each = files.iter().map(|(path, kept)| fetching.file(path, kept));
        stream::iter(each)
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        let path = self.folder.join(COMPLETE);
        std::fs::write(&path, "").map_err(RunError::io(path.display().to_string()))
    }
}

/// What every file of a snapshot is fetched with.
struct Fetching<'a> {
    service: Service,
    hub: &'a Hub,
    repository: &'a Repository<'a>,
    snapshot: &'a Snapshot,
}

impl Fetching<'_> {
    /// See to it that the file is there. It comes into its place whole and checked, so that one that is there
    /// needs no look.
    async fn file(&self, path: &str, kept: &Kept) -> Result<(), RunError> {
        let to = self.snapshot.folder.join(path);
        if to.is_file() {
            return Ok(());
        }
        let (commit, name) = (&self.snapshot.commit, &self.repository.name);
        let url = self.hub.file(Kind::Dataset, name, commit, path);
        let limits = Limits {
            file: kept.size,
            total: kept.size,
        };
        let shown = format!("{path} of {}", self.repository.shown());
        let parcel = download(&self.service, &url, &kept.expected(), limits).await;
        let mut parcel = parcel.map_err(|trouble| {
            let why = trouble.in_words();
            RunError::Endpoint(format!("{shown}: {why}; the same command goes on"))
        })?;
        let io = |error: io::Error| RunError::io(to.display().to_string())(error);
        if !kept.is_large() && !is_blob(&mut parcel, path, kept).map_err(io)? {
            parcel.discard();
            return Err(RunError::Endpoint(format!(
                "{shown} has other bytes than its listing says, at {commit}"
            )));
        }
        parcel.place(&to).map_err(io)?;
        info!("{path} ({} bytes)", kept.size);
        Ok(())
    }
}

/// Whether it is the blob of git that the listing names.
fn is_blob(parcel: &mut Parcel, path: &str, kept: &Kept) -> io::Result<bool> {
    let mut bytes = Vec::new();
    parcel.file()?.take(SMALL + 1).read_to_end(&mut bytes)?;
    Ok(kept.is(&Content::of_bytes(path, bytes)?))
}

/// What the Hub calls a commit; nothing that leads anywhere in a path.
fn is_commit(text: &str) -> bool {
    (40..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether a dataset needs that file here: shards, card, proof, and the input files under their digests.
fn is_of_a_dataset(path: &str) -> bool {
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

fn bounded(shown: &str, files: &BTreeMap<String, Kept>) -> Result<(), RunError> {
    let bad = |text: String| Err(RunError::BadInput(format!("{shown}: {text}")));
    if !files.keys().any(|path| path.ends_with(".parquet")) {
        return bad("no dataset of this kind: it has no data/*.parquet".to_owned());
    }
    if files.len() > FILES {
        return bad(format!("{} files, of at most {FILES}", files.len()));
    }
    let large = |kept: &Kept| kept.size > if kept.is_large() { FILE } else { SMALL };
    if let Some((path, kept)) = files.iter().find(|(_, kept)| large(kept)) {
        return bad(format!(
            "{path} has {} bytes, more than are taken",
            kept.size
        ));
    }
    let all = files
        .values()
        .map(|kept| u128::from(kept.size))
        .sum::<u128>();
    match all > u128::from(ALL) {
        true => bad(format!("{all} bytes, more than the {ALL} that are taken")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_datasets_are_read() {
        let pin = |text: &str| Pin::parse(text).map(|pin| (pin.name, pin.revision));
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
        let pinned = Pin::parse(&format!("o/n@{whole}")).unwrap();
        assert_eq!(pinned.commit(), Some(whole.as_str()));
        assert_eq!(Pin::parse("o/n@main").unwrap().commit(), None);
        assert_eq!(pinned.to_string(), format!("datasets/o/n@{whole}"));
    }

    #[test]
    fn only_what_a_dataset_has_is_taken() {
        let digest = "ab".repeat(32);
        for path in [
            "README.md".to_owned(),
            "proof.json".to_owned(),
            "data/train-00000-of-00001.parquet".to_owned(),
            "train.parquet".to_owned(),
            format!("files/ab/{digest}"),
        ] {
            assert!(is_of_a_dataset(&path), "{path}");
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
            assert!(!is_of_a_dataset(&path), "{path}");
        }
    }

    #[test]
    fn sizes_are_bounded_before_anything_is_fetched() {
        let kept = |size: u64, large: bool| -> Kept {
            let lfs = format!(r#", "lfs": {{"oid": "x", "size": {size}}}"#);
            let text = format!(
                r#"{{"type": "file", "path": "a", "oid": "x", "size": {size}{}}}"#,
                if large { lfs.as_str() } else { "" }
            );
            let entry: super::super::Entry = serde_json::from_str(&text).unwrap();
            entry.file().unwrap().1
        };
        let of = |files: Vec<(&str, Kept)>| {
            let files = files
                .into_iter()
                .map(|(path, kept)| (path.to_owned(), kept));
            bounded("o/n", &files.collect()).map_err(|error| error.to_string())
        };
        assert_eq!(of(vec![("data/a.parquet", kept(FILE, true))]), Ok(()));
        let none = of(vec![("README.md", kept(1, false))]).unwrap_err();
        assert!(none.contains("no data/*.parquet"), "{none}");
        let large = of(vec![("data/a.parquet", kept(FILE + 1, true))]).unwrap_err();
        assert!(large.contains("data/a.parquet has"), "{large}");
        let git = [
            ("README.md", kept(SMALL + 1, false)),
            ("a.parquet", kept(1, true)),
        ];
        assert!(of(git.to_vec()).unwrap_err().contains("README.md has"));
        let names: Vec<String> = (0..65).map(|n| format!("data/{n}.parquet")).collect();
        let many = names.iter().map(|name| (name.as_str(), kept(FILE, true)));
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
            if let Ok(pin) = Pin::parse(&text) {
                let place = Snapshot::at(&pin, Path::new("c"), "0").folder;
                assert_eq!(place.components().count(), 5, "{}", place.display());
            }
            if is_of_a_dataset(&text) {
                assert!(!text.contains("..") || !text.split('/').any(|part| part == ".."));
            }
        });
    }
}
