//! A repository of the Hub: whether it is there, and what it holds.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use serde::Deserialize;
use serde_json::json;

use super::client::{parse, read};
use super::refusal::{Refusal, Why};
use super::{Content, Hub, Kind};
use crate::crawl::source::web::headers::next;

/// Most pages of a tree, each of up to 1,000 entries.
const MAX_PAGES: usize = 2_000;
/// Files that the Hub is asked about at once.
const MODES: usize = 256;
/// The branch that is written.
pub const BRANCH: &str = "main";

/// A repository.
#[derive(Clone, Debug)]
pub struct Repository<'a> {
    pub(super) hub: &'a Hub,
    /// What it holds.
    pub kind: Kind,
    /// `owner/name`.
    pub name: String,
}

/// What the Hub says of a repository.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct About {
    /// The newest commit.
    pub sha: String,
    /// Whether only some may see it.
    #[serde(default)]
    pub private: bool,
}

/// A file as the Hub has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Bytes.
    pub size: u64,
    /// Git's hash of the blob.
    blob: String,
    /// SHA-256 of a large file.
    sha256: Option<String>,
}

impl Kept {
    /// As if that file were there, small.
    #[cfg(test)]
    pub(crate) fn of(content: &Content) -> Self {
        Self {
            size: content.size,
            blob: content.blob.clone(),
            sha256: None,
        }
    }

    /// Whether it is that file, by size and hash.
    pub fn is(&self, content: &Content) -> bool {
        let same = match &self.sha256 {
            Some(sha256) => *sha256 == content.sha256,
            None => self.blob == content.blob,
        };
        same && self.size == content.size
    }
}

/// How the Hub keeps a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As a blob of git: its bytes are in the commit.
    Regular,
    /// Apart: the commit has its hash.
    Large,
}

impl<'a> Repository<'a> {
    /// `owner/name` on the Hub.
    ///
    /// # Errors
    /// Where the name can be none.
    pub fn new(hub: &'a Hub, kind: Kind, name: &str) -> Result<Self, Refusal> {
        Self::check(name)?;
        Ok(Self {
            hub,
            kind,
            name: name.to_owned(),
        })
    }

    /// Whether a repository may be called that.
    ///
    /// # Errors
    /// Where it may not.
    pub fn check(name: &str) -> Result<(), Refusal> {
        let word = |text: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            let ends = |c: char| c == '-' || c == '.';
            (1..=96).contains(&text.len())
                && text.chars().all(plain)
                && !text.starts_with(ends)
                && !text.ends_with(ends)
                && !text.contains("..")
                && !text.contains("--")
                && !text.ends_with(".git")
        };
        match name.split_once('/') {
            Some((owner, own)) if word(owner) && word(own) => Ok(()),
            _ => Err(Refusal::new(
                name,
                Why::Setting,
                "expected OWNER/NAME, each of letters, digits, `-`, `_` and `.`".into(),
            )),
        }
    }

    /// As people write it: `datasets/owner/name`.
    pub fn shown(&self) -> String {
        format!("{}{}", self.kind.prefix(), self.name)
    }

    /// Its page.
    pub fn page(&self) -> String {
        let parts = self.kind.folder().into_iter();
        self.hub.url(parts.chain(self.name.split('/'))).to_string()
    }

    pub(super) fn api<'b>(&'b self, rest: impl IntoIterator<Item = &'b str>) -> Url {
        let first = ["api", self.kind.plural()].into_iter();
        self.hub.url(first.chain(self.name.split('/')).chain(rest))
    }

    /// What the Hub says of it; `None` where it is not there, or not for us.
    ///
    /// # Errors
    /// Every other refusal.
    pub async fn about(&self) -> Result<Option<About>, Refusal> {
        let what = format!("looking at {}", self.shown());
        let mut url = self.api([]);
        url.query_pairs_mut()
            .append_pair("expand", "sha")
            .append_pair("expand", "private");
        match self.hub.json(&what, || self.hub.get(url.clone())).await {
            Ok(about) => Ok(Some(about)),
            Err(refusal) if refusal.why == Why::Missing => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Make it. One that is there already is none of this call's business.
    ///
    /// # Errors
    /// Refusals.
    pub async fn create(&self, private: bool) -> Result<(), Refusal> {
        let what = format!("creating {}", self.shown());
        let (owner, name) = self.name.split_once('/').unwrap_or_default();
        let body = json!({
            "type": self.kind.word(),
            "organization": owner,
            "name": name,
            "private": private,
        });
        let url = self.hub.url(["api", "repos", "create"]);
        let ask = || self.hub.post(url.clone()).json(&body);
        match self.hub.ask(&what, ask).await {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.why == Why::Conflict => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// The files at a commit, by path.
    ///
    /// # Errors
    /// Refusals; more pages than anybody's repository has.
    pub async fn tree(&self, commit: &str) -> Result<BTreeMap<String, Kept>, Refusal> {
        let what = format!("listing {} at {commit}", self.shown());
        let mut url = self.api(["tree", commit]);
        url.query_pairs_mut().append_pair("recursive", "true");
        let mut files = BTreeMap::new();
        for _ in 0..MAX_PAGES {
            let ask = || self.hub.get(url.clone());
            let response = self.hub.ask(&what, ask).await?;
            let more = next(&url, response.headers());
            let entries: Vec<Entry> = parse(&what, response).await?;
            files.extend(entries.into_iter().filter_map(Entry::file));
            match more {
                Some(more) => url = more,
                None => return Ok(files),
            }
        }
        let said = format!("a tree of more than {MAX_PAGES} pages");
        Err(Refusal::new(&what, Why::Form, said))
    }

    /// How the Hub is going to keep these files.
    ///
    /// # Errors
    /// Refusals; files that the repository ignores.
    pub async fn modes<'c>(
        &self,
        contents: &[&'c Content],
    ) -> Result<Vec<(&'c Content, Mode)>, Refusal> {
        let what = format!("asking how {} keeps files", self.shown());
        let mut modes = Vec::with_capacity(contents.len());
        for some in contents.chunks(MODES) {
            let file = |content: &&Content| {
                json!({
                    "path": content.path,
                    "size": content.size,
                    "sample": STANDARD.encode(&content.sample),
                })
            };
            let body = json!({"files": some.iter().map(file).collect::<Vec<_>>()});
            let url = self.api(["preupload", BRANCH]);
            let ask = || self.hub.post(url.clone()).json(&body);
            let answer: Preupload = self.hub.json(&what, ask).await?;
            let answered = answer.files.into_iter().map(|f| (f.path.clone(), f));
            let answered: BTreeMap<String, Upload> = answered.collect();
            for content in some {
                let strange = |said: String| Refusal::new(&what, Why::Form, said);
                let upload = answered.get(&content.path);
                let upload =
                    upload.ok_or_else(|| strange(format!("nothing of {}", content.path)))?;
                if upload.should_ignore {
                    let said = format!(".gitignore of the repository excludes {}", content.path);
                    return Err(Refusal::new(&what, Why::Setting, said));
                }
                // An empty file cannot be kept apart.
                let large = upload.upload_mode == "lfs" && content.size > 0;
                let mode = if large { Mode::Large } else { Mode::Regular };
                modes.push((*content, mode));
            }
        }
        Ok(modes)
    }

    /// A small file at a commit.
    ///
    /// # Errors
    /// Refusals; a file of more bytes.
    pub async fn file(&self, commit: &str, path: &str, most: usize) -> Result<Vec<u8>, Refusal> {
        let what = format!("reading {path} of {}", self.shown());
        let parts = self.kind.folder().into_iter();
        let parts = parts.chain(self.name.split('/')).chain(["resolve", commit]);
        let url = self.hub.url(parts.chain(path.split('/')));
        let ask = || self.hub.get(url.clone());
        let response = self.hub.ask(&what, ask).await?;
        read(&what, response, most).await
    }
}

/// An entry of a tree.
#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    oid: String,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    lfs: Option<Lfs>,
}

#[derive(Debug, Deserialize)]
struct Lfs {
    oid: String,
    size: u64,
}

impl Entry {
    fn file(self) -> Option<(String, Kept)> {
        let kept = Kept {
            size: self.lfs.as_ref().map_or(self.size, |lfs| lfs.size),
            blob: self.oid,
            sha256: self.lfs.map(|lfs| lfs.oid),
        };
        (self.kind == "file").then_some((self.path, kept))
    }
}

#[derive(Debug, Deserialize)]
struct Preupload {
    files: Vec<Upload>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Upload {
    path: String,
    upload_mode: String,
    #[serde(default)]
    should_ignore: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crawl::source::web::Surroundings;

    fn hub() -> Hub {
        Hub::within(&Surroundings::of(&[("HF_ENDPOINT", "https://h/hub/")])).unwrap()
    }

    #[test]
    fn names_are_plain_and_addresses_follow() {
        let hub = hub();
        let repository = Repository::new(&hub, Kind::Dataset, "o/n").unwrap();
        assert_eq!(repository.page(), "https://h/hub/datasets/o/n");
        assert_eq!(
            repository.api(["tree", "a/b"]).as_str(),
            "https://h/hub/api/datasets/o/n/tree/a%2Fb"
        );
        let model = Repository::new(&hub, Kind::Model, "o/n").unwrap();
        assert_eq!(model.page(), "https://h/hub/o/n");
        assert_eq!(model.api([]).as_str(), "https://h/hub/api/models/o/n");
        for wrong in [
            "n", "o/n/m", "../n", "o/", "o/n.git", "o/a--b", "o/-a", "o/ü",
        ] {
            assert!(
                Repository::new(&hub, Kind::Model, wrong).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn what_the_hub_has_is_compared_by_the_hash_it_knows() {
        let content = Content::of_bytes("a", "hello\n").unwrap();
        let entry = |text: &str| -> Option<(String, Kept)> {
            serde_json::from_str::<Entry>(text).unwrap().file()
        };
        let blob = &content.blob;
        let regular = format!(r#"{{"type": "file", "path": "a", "oid": "{blob}", "size": 6}}"#);
        assert!(entry(&regular).unwrap().1.is(&content));
        let other = regular.replace("6}", "7}");
        assert!(!entry(&other).unwrap().1.is(&content));
        let oid = &content.sha256;
        let large = format!(
            r#"{{"type": "file", "path": "a", "oid": "x", "size": 130,
                "lfs": {{"oid": "{oid}", "size": 6, "pointerSize": 130}}}}"#
        );
        assert!(entry(&large).unwrap().1.is(&content));
        assert!(
            !entry(&large.replace(oid.as_str(), "y"))
                .unwrap()
                .1
                .is(&content)
        );
        let folder = r#"{"type": "directory", "path": "d", "oid": "x", "size": 0}"#;
        assert_eq!(entry(folder), None);
    }

    #[test]
    fn fuzz_answers_of_a_hub() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = serde_json::from_slice::<Vec<Entry>>(bytes);
            let _ = serde_json::from_slice::<Preupload>(bytes);
            let _ = serde_json::from_slice::<About>(bytes);
        });
    }
}
