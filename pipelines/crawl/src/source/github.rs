//! Files of GitHub repositories, at a fixed commit.
//!
//! The tree and the license come from the API, which allows sixty requests per hour without a token. The files
//! come from raw.githubusercontent.com.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pybench_run::Failure;
use serde::Deserialize;

use super::listing::{FileFilter, ListedFile, download_all, left_out, parse_pinned};
use super::{Sink, Source};
use pybench_net::{Expected, FetchError, HttpClient, Service};
use pybench_types::license::spdx;

const API: &str = "https://api.github.com";
const FILES: &str = "https://raw.githubusercontent.com";
const HELP: &str =
    "GitHub denied access: set GITHUB_TOKEN to a token that may read the repository, or unset it";
/// Git's file mode of a symbolic link.
const SYMLINK_MODE: &str = "120000";

/// One item per repository.
pub(super) struct Github {
    api: Service,
    files: Service,
    repositories: Vec<String>,
    filter: FileFilter,
}

impl Github {
    pub(super) fn open(
        web: &Arc<HttpClient>,
        repositories: &[String],
        include: &[String],
        files: usize,
    ) -> Result<Self, Failure> {
        Self::at(
            web,
            [API, FILES],
            repositories,
            FileFilter::new(include, files)?,
        )
    }

    fn at(
        web: &Arc<HttpClient>,
        [api, files]: [&str; 2],
        repositories: &[String],
        filter: FileFilter,
    ) -> Result<Self, Failure> {
        let auth = web.credentials().github()?;
        let pace = web.throttle("github", Duration::from_millis(200), 2);
        Ok(Self {
            api: Service::new(web, api, auth.clone(), pace.clone(), HELP)?,
            files: Service::new(web, files, auth, pace, HELP)?,
            repositories: repositories.to_vec(),
            filter,
        })
    }

    async fn license(&self, name: &str, commit: &str) -> Result<Option<String>, FetchError> {
        let path = ["repos"].into_iter().chain(name.split('/'));
        let url = self.api.url(path.chain(["license"]), &[("ref", commit)]);
        match self.api.json::<License>(url).await {
            Ok((found, _)) => Ok(found.name()),
            // 404: the repository has no license.
            Err(FetchError::Refused(_)) => Ok(None),
            Err(failed) => Err(failed),
        }
    }

    async fn tree(&self, name: &str, commit: &str) -> Result<Tree, FetchError> {
        let path = ["repos"].into_iter().chain(name.split('/'));
        let path = path.chain(["git", "trees", commit]);
        let url = self.api.url(path, &[("recursive", "1")]);
        Ok(self.api.json(url).await?.0)
    }
}

#[async_trait]
impl Source for Github {
    fn items(&self) -> Vec<String> {
        self.repositories.clone()
    }

    async fn collect(&self, item: &str, sink: Sink) -> Result<(), Failure> {
        let (name, commit) = parse_pinned(item)?;
        let of_item = |error: FetchError| error.into_item_failure(item);
        let tree = self.tree(name, commit).await.map_err(of_item)?;
        let sink = sink.with_license(self.license(name, commit).await.map_err(of_item)?);
        let origin = format!("github:{name}@{commit}");
        if tree.truncated {
            let reason = "the tree is too large: GitHub lists only part of it";
            left_out(&sink, &origin, reason.to_owned()).await?;
        }
        let url_of = |path: &str| {
            let parts = name.split('/').chain([commit]).chain(path.split('/'));
            self.files.url(parts, &[])
        };
        download_all(
            &self.files,
            &sink,
            &origin,
            &self.filter,
            tree.files(),
            url_of,
        )
        .await
    }
}

#[derive(Debug, Deserialize)]
struct Tree {
    tree: Vec<GitTreeEntry>,
    #[serde(default)]
    truncated: bool,
}

#[derive(Debug, Deserialize)]
struct GitTreeEntry {
    path: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    mode: String,
    size: Option<u64>,
}

impl Tree {
    fn files(self) -> Vec<ListedFile> {
        let entries = self.tree.into_iter();
        let files = entries.filter(|entry| entry.kind == "blob" && entry.mode != SYMLINK_MODE);
        let listed = files.map(|entry| ListedFile {
            path: entry.path,
            expected: Expected {
                size: entry.size,
                sha256: None,
            },
        });
        listed.collect()
    }
}

#[derive(Debug, Deserialize)]
struct License {
    license: Option<SpdxId>,
}

#[derive(Debug, Deserialize)]
struct SpdxId {
    spdx_id: Option<String>,
}

impl License {
    /// The SPDX identifier. GitHub uses `NOASSERTION` for a license that it does not recognize.
    fn name(self) -> Option<String> {
        let name = self.license?.spdx_id?;
        spdx(&name).filter(|name| name != "NOASSERTION")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::mock::{Answer, Mock, collect};

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    const TREE: &str = r#"{"sha": "x", "truncated": false, "tree": [
        {"path": "data", "mode": "040000", "type": "tree", "sha": "t"},
        {"path": "data/b c.csv", "mode": "100644", "type": "blob", "size": 8, "sha": "1"},
        {"path": "data/link.csv", "mode": "120000", "type": "blob", "size": 5, "sha": "2"},
        {"path": "module", "mode": "160000", "type": "commit", "sha": "3"},
        {"path": "../up.csv", "mode": "100644", "type": "blob", "size": 1, "sha": "4"},
        {"path": "src/main.rs", "mode": "100644", "type": "blob", "size": 9, "sha": "5"},
        {"path": "data/gone.csv", "mode": "100644", "type": "blob", "size": 9, "sha": "6"}]}"#;

    fn at(path: &str) -> String {
        format!("/raw/o/n/{COMMIT}/{path}")
    }

    async fn mock() -> Mock {
        let mock = Mock::start().await;
        let tree = format!("/api/repos/o/n/git/trees/{COMMIT}");
        mock.on(&tree, Answer::json(TREE));
        mock.on(
            "/api/repos/o/n/license",
            Answer::json(r#"{"license": {"spdx_id": "MIT"}}"#),
        );
        mock.on(&at("data/b%20c.csv"), Answer::text("a,b\n1,2\n"));
        mock
    }

    fn source(mock: &Mock, variables: &[(&str, &str)]) -> Github {
        let bases = [mock.at("/api"), mock.at("/raw")];
        let named = [format!("o/n@{COMMIT}")];
        let choice = FileFilter::new(&[], 10).unwrap();
        Github::at(
            &mock.web(variables),
            bases.each_ref().map(String::as_str),
            &named,
            choice,
        )
        .unwrap()
    }

    #[tokio::test]
    async fn files_of_a_commit_come_with_its_license() {
        let mock = mock().await;
        let source = source(&mock, &[("GITHUB_TOKEN", "t0ken")]);
        let seen = collect(&source).await.unwrap();
        assert_eq!(
            seen,
            [
                format!("MIT github:o/n@{COMMIT}#data/b c.csv"),
                format!(
                    "left github:o/n@{COMMIT}#data/gone.csv: the server answered 404 Not Found"
                ),
            ]
        );
        let asked = mock.asked();
        assert!(
            asked
                .iter()
                .all(|ask| ask.header("authorization") == "Bearer t0ken")
        );
        assert!(asked.iter().any(|ask| ask.path.ends_with("?recursive=1")));
        assert!(
            !asked
                .iter()
                .any(|ask| ask.path.contains("main.rs") || ask.path.contains("up.csv"))
        );
    }

    #[tokio::test]
    async fn failures_have_reasons_and_temporary_ones_are_retryable() {
        let tree = format!("/api/repos/o/n/git/trees/{COMMIT}");
        let exhausted = Answer::status(403)
            .with("x-ratelimit-remaining", "0")
            .with("retry-after", "9");
        for (answer, reason, retryable, after) in [
            (Answer::status(401), "GITHUB_TOKEN", false, None),
            (Answer::status(403), "GITHUB_TOKEN", false, None),
            (Answer::status(404), "404", false, None),
            (exhausted, "403", true, Some(9)),
            (
                Answer::status(429).with("retry-after", "7"),
                "429",
                true,
                Some(7),
            ),
            (Answer::status(502), "502", true, None),
            (
                Answer::json("{\"tree\": 1"),
                "unexpected response",
                true,
                None,
            ),
            (Answer::json(TREE).cut(40), "connection lost", true, None),
        ] {
            let mock = mock().await;
            mock.on(&tree, answer);
            let failure = collect(&source(&mock, &[])).await.unwrap_err();
            assert!(
                failure.detail.contains(reason),
                "{reason}: {}",
                failure.detail
            );
            let rest = failure.retry_after.map(|after| after.as_secs());
            assert_eq!((failure.retryable, rest), (retryable, after), "{reason}");
        }
    }

    #[tokio::test]
    async fn a_missing_license_is_accepted_and_a_truncated_tree_is_reported() {
        let mock = mock().await;
        mock.on("/api/repos/o/n/license", Answer::status(404));
        let tree = TREE.replace("\"truncated\": false", "\"truncated\": true");
        mock.on(
            &format!("/api/repos/o/n/git/trees/{COMMIT}"),
            Answer::json(&tree),
        );
        let seen = collect(&source(&mock, &[])).await.unwrap();
        assert!(
            seen[0].ends_with("GitHub lists only part of it"),
            "{seen:?}"
        );
        assert_eq!(seen[1], format!("- github:o/n@{COMMIT}#data/b c.csv"));
    }

    /// Fetches one small file from github.com.
    #[tokio::test]
    #[ignore = "needs the network"]
    async fn live_service() {
        let cache = tempfile::tempdir().unwrap();
        let named = ["octocat/Spoon-Knife@d0dd1f61b33d64e29d8bc1372a94ef6a2fee76a9".to_owned()];
        let web = HttpClient::new(cache.path());
        let source = Github::open(&web, &named, &["*.md".to_owned()], 1).unwrap();
        let seen = crate::source::mock::collect(&source).await.unwrap();
        assert!(seen[0].ends_with("#README.md"), "{seen:?}");
    }

    #[test]
    fn fuzz_answers() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(tree) = serde_json::from_slice::<Tree>(bytes) {
                tree.files();
            }
            if let Ok(license) = serde_json::from_slice::<License>(bytes) {
                license.name();
            }
        });
    }
}
