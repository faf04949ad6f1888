//! Repositories on the Hub: looks them up, creates them and lists their files.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Url;
use serde::Deserialize;
use serde_json::json;

use super::client::{parse, read};
use super::error::{HubError, HubErrorKind};
use super::{Hub, Kind, RemoteFile, TreeEntry, UploadFile};
use pybench_net::headers::next;

/// Maximum number of pages of a tree, each with up to 1,000 entries.
const MAX_PAGES: usize = 2_000;
/// Files per preupload request.
const PREUPLOAD_BATCH: usize = 256;
/// The branch that commits go to.
pub const BRANCH: &str = "main";

/// A repository on the Hub.
#[derive(Clone, Debug)]
pub struct Repository<'a> {
    pub(super) hub: &'a Hub,
    pub kind: Kind,
    /// `owner/name`.
    pub name: String,
}

/// The Hub's information about a repository.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RepositoryInfo {
    /// The newest commit, or the commit of the requested revision.
    pub sha: String,
    #[serde(default)]
    pub private: bool,
}

/// How the Hub stores a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As a git blob, whose bytes are part of the commit.
    Regular,
    /// In separate storage; the commit refers to it by hash.
    Large,
}

impl<'a> Repository<'a> {
    /// The repository `owner/name`.
    ///
    /// # Errors
    /// The name is invalid.
    pub fn new(hub: &'a Hub, kind: Kind, name: &str) -> Result<Self, HubError> {
        Self::check(name)?;
        Ok(Self {
            hub,
            kind,
            name: name.to_owned(),
        })
    }

    /// Checks the name of a repository.
    ///
    /// # Errors
    /// The name is invalid.
    pub fn check(name: &str) -> Result<(), HubError> {
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
            _ => Err(HubError::new(
                name,
                HubErrorKind::Local,
                "expected OWNER/NAME, each of letters, digits, `-`, `_` and `.`".into(),
            )),
        }
    }

    /// The name as people write it: `datasets/owner/name`.
    pub fn shown(&self) -> String {
        format!("{}{}", self.kind.prefix(), self.name)
    }

    /// The URL of its page.
    pub fn page(&self) -> String {
        let parts = self.kind.folder().into_iter();
        self.hub.url(parts.chain(self.name.split('/'))).to_string()
    }

    pub(super) fn api<'b>(&'b self, rest: impl IntoIterator<Item = &'b str>) -> Url {
        let first = ["api", self.kind.plural()].into_iter();
        self.hub.url(first.chain(self.name.split('/')).chain(rest))
    }

    /// Looks up the repository; `None` if it does not exist or is not accessible.
    ///
    /// # Errors
    /// Any other failure.
    pub async fn about(&self) -> Result<Option<RepositoryInfo>, HubError> {
        self.about_at(None).await
    }

    /// Looks up a commit, branch or tag, or the newest commit; `None` if it does not exist or is not accessible.
    ///
    /// # Errors
    /// Any other failure.
    pub async fn about_at(
        &self,
        revision: Option<&str>,
    ) -> Result<Option<RepositoryInfo>, HubError> {
        let what = format!("looking up {}", self.shown());
        let revision = revision.map(|revision| ["revision", revision]);
        let mut url = self.api(revision.into_iter().flatten());
        url.query_pairs_mut()
            .append_pair("expand", "sha")
            .append_pair("expand", "private");
        match self.hub.json(&what, || self.hub.get(url.clone())).await {
            Ok(about) => Ok(Some(about)),
            Err(error) if error.kind == HubErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the repository. Succeeds without a change if it exists.
    ///
    /// # Errors
    /// The request failed.
    pub async fn create(&self, private: bool) -> Result<(), HubError> {
        let what = format!("creating {}", self.shown());
        let (owner, name) = self.name.split_once('/').unwrap_or_default();
        let body = json!({
            "type": self.kind.word(),
            "organization": owner,
            "name": name,
            "private": private,
        });
        let url = self.hub.url(["api", "repos", "create"]);
        let request = || self.hub.post(url.clone()).json(&body);
        match self.hub.send(&what, request).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind == HubErrorKind::Conflict => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Lists the files at a commit, by path.
    ///
    /// # Errors
    /// The request failed, or the listing has too many pages.
    pub async fn tree(&self, commit: &str) -> Result<BTreeMap<String, RemoteFile>, HubError> {
        let what = format!("listing {} at {commit}", self.shown());
        let mut url = self.api(["tree", commit]);
        url.query_pairs_mut().append_pair("recursive", "true");
        let mut files = BTreeMap::new();
        for _ in 0..MAX_PAGES {
            let request = || self.hub.get(url.clone());
            let response = self.hub.send(&what, request).await?;
            let more = next(&url, response.headers());
            let entries: Vec<TreeEntry> = parse(&what, response).await?;
            files.extend(entries.into_iter().filter_map(TreeEntry::file));
            match more {
                Some(more) => url = more,
                None => return Ok(files),
            }
        }
        let message = format!("a tree of more than {MAX_PAGES} pages");
        Err(HubError::new(
            &what,
            HubErrorKind::UnexpectedResponse,
            message,
        ))
    }

    /// Asks the Hub how it will store these files.
    ///
    /// # Errors
    /// The request failed, or the repository ignores a file.
    pub async fn modes<'c>(
        &self,
        contents: &[&'c UploadFile],
    ) -> Result<Vec<(&'c UploadFile, Mode)>, HubError> {
        let what = format!("asking {} how it stores files", self.shown());
        let mut modes = Vec::with_capacity(contents.len());
        for some in contents.chunks(PREUPLOAD_BATCH) {
            let file = |content: &&UploadFile| {
                json!({
                    "path": content.path,
                    "size": content.size,
                    "sample": STANDARD.encode(&content.sample),
                })
            };
            let body = json!({"files": some.iter().map(file).collect::<Vec<_>>()});
            let url = self.api(["preupload", BRANCH]);
            let request = || self.hub.post(url.clone()).json(&body);
            let answer: Preupload = self.hub.json(&what, request).await?;
            let answered = answer.files.into_iter().map(|f| (f.path.clone(), f));
            let answered: BTreeMap<String, Upload> = answered.collect();
            for content in some {
                let unexpected = |message: String| {
                    HubError::new(&what, HubErrorKind::UnexpectedResponse, message)
                };
                let upload = answered.get(&content.path);
                let upload = upload
                    .ok_or_else(|| unexpected(format!("it does not mention {}", content.path)))?;
                if upload.should_ignore {
                    let message = format!("the repository's .gitignore excludes {}", content.path);
                    return Err(HubError::new(&what, HubErrorKind::Local, message));
                }
                // An empty file cannot be stored as a large file.
                let large = upload.upload_mode == "lfs" && content.size > 0;
                let mode = if large { Mode::Large } else { Mode::Regular };
                modes.push((*content, mode));
            }
        }
        Ok(modes)
    }

    /// Reads a small file at a commit.
    ///
    /// # Errors
    /// The request failed, or the file has more than `max_bytes`.
    pub async fn file(
        &self,
        commit: &str,
        path: &str,
        max_bytes: usize,
    ) -> Result<Vec<u8>, HubError> {
        let what = format!("reading {path} of {}", self.shown());
        let url = self.hub.file_url(self.kind, &self.name, commit, path);
        let request = || self.hub.get(url.clone());
        let response = self.hub.send(&what, request).await?;
        read(&what, response, max_bytes).await
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
    use pybench_net::Credentials;

    fn hub() -> Hub {
        Hub::with_credentials(&Credentials::of(&[("HF_ENDPOINT", "https://h/hub/")])).unwrap()
    }

    #[test]
    fn names_are_checked_and_urls_are_built() {
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
    fn fuzz_responses() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = serde_json::from_slice::<Vec<TreeEntry>>(bytes);
            let _ = serde_json::from_slice::<Preupload>(bytes);
            let _ = serde_json::from_slice::<RepositoryInfo>(bytes);
        });
    }
}
