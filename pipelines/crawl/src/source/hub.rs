//! Dataset repositories on the Hugging Face Hub, at a fixed commit.
//!
//! Uses the Hub's HTTP routes: the tree of the commit, the license of the card, and one request per file.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pybench_run::Failure;

use super::listing::{FileFilter, ListedFile, download_all, parse_pinned};
use super::{Sink, Source};
use pybench_hub::{LicenseInfo, RemoteFile, TreeEntry};
use pybench_net::{FetchError, HttpClient, Service};
use pybench_types::license::spdx;

/// The default endpoint; `HF_ENDPOINT` overrides it.
const ENDPOINT: &str = "https://huggingface.co";
const HELP: &str = "the dataset does not exist, or it is private or gated: accept its terms on its page, and set \
                    HF_TOKEN to a token with read access";
/// Maximum number of pages of a tree, each with up to 1,000 entries.
const MAX_PAGES: usize = 50;

/// One item per repository.
pub(super) struct Hub {
    service: Service,
    datasets: Vec<String>,
    filter: FileFilter,
}

impl Hub {
    pub(super) fn open(
        web: &Arc<HttpClient>,
        datasets: &[String],
        include: &[String],
        files: usize,
    ) -> Result<Self, Failure> {
        let named = web.credentials().variable("HF_ENDPOINT");
        let base = named.as_deref().unwrap_or(ENDPOINT);
        let auth = web.credentials().hub()?;
        let pace = web.throttle("hub", Duration::from_millis(300), 2);
        Ok(Self {
            service: Service::new(web, base, auth, pace, HELP)?,
            datasets: datasets.to_vec(),
            filter: FileFilter::new(include, files)?,
        })
    }

    async fn license(&self, name: &str, commit: &str) -> Result<Option<String>, FetchError> {
        let path = ["api", "datasets"].into_iter().chain(name.split('/'));
        let url = self.service.url(path.chain(["revision", commit]), &[]);
        let (card, _) = self.service.json::<LicenseInfo>(url).await?;
        Ok(license(&card))
    }

    async fn tree(&self, name: &str, commit: &str) -> Result<Vec<ListedFile>, FetchError> {
        let path = ["api", "datasets"].into_iter().chain(name.split('/'));
        let path = path.chain(["tree", commit]);
        let mut url = self.service.url(path, &[("recursive", "true")]);
        let mut files = Vec::new();
        for _ in 0..MAX_PAGES {
            let (entries, next) = self.service.json::<Vec<TreeEntry>>(url).await?;
            files.extend(entries.into_iter().filter_map(TreeEntry::file).map(listed));
            match next {
                Some(next) => url = next,
                None => return Ok(files),
            }
        }
        Err(FetchError::Refused(format!(
            "its tree has more than {MAX_PAGES} pages"
        )))
    }
}

#[async_trait]
impl Source for Hub {
    fn items(&self) -> Vec<String> {
        self.datasets.clone()
    }

    async fn collect(&self, item: &str, sink: Sink) -> Result<(), Failure> {
        let (name, commit) = parse_pinned(item)?;
        let of_item = |error: FetchError| error.into_item_failure(item);
        let sink = sink.with_license(self.license(name, commit).await.map_err(of_item)?);
        let files = self.tree(name, commit).await.map_err(of_item)?;
        let origin = format!("hf:datasets/{name}@{commit}");
        let url_of = |path: &str| {
            let parts = ["datasets"].into_iter().chain(name.split('/'));
            let parts = parts.chain(["resolve", commit]).chain(path.split('/'));
            self.service.url(parts, &[])
        };
        download_all(&self.service, &sink, &origin, &self.filter, files, url_of).await
    }
}

/// All licenses that a card names, as one SPDX expression.
fn license(card: &LicenseInfo) -> Option<String> {
    let names = card.names().into_iter().take(10).filter_map(spdx);
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| names.join(" AND "))
}

fn listed((path, kept): (String, RemoteFile)) -> ListedFile {
    let expected = kept.expected();
    ListedFile { path, expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::mock::{Answer, Mock, collect};

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    /// SHA-256 of `abc`.
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    async fn mock() -> Mock {
        let mock = Mock::start().await;
        let api = format!("/api/datasets/o/n/revision/{COMMIT}");
        mock.on(
            &api,
            Answer::json(r#"{"id": "o/n", "cardData": {"license": "cc-by-4.0"}, "gated": false}"#),
        );
        let first = r#"[{"type": "directory", "oid": "1", "size": 0, "path": "data"},
            {"type": "file", "oid": "2", "size": 8, "path": "data/b c.csv"},
            {"type": "file", "oid": "3", "size": 1, "path": "../x.csv"}]"#;
        let tree = format!("/api/datasets/o/n/tree/{COMMIT}");
        let next = mock.at(&format!("/page2/{COMMIT}"));
        mock.on(
            &tree,
            Answer::json(first).with("link", &format!("<{next}>; rel=\"next\"")),
        );
        let second = format!(
            r#"[{{"type": "file", "oid": "4", "size": 130, "path": "large.txt",
            "lfs": {{"oid": "{ABC}", "size": 3, "pointerSize": 130}}}}]"#
        );
        mock.on(&format!("/page2/{COMMIT}"), Answer::json(&second));
        mock.on(&resolve("data/b%20c.csv"), Answer::text("a,b\n1,2\n"));
        mock.on(&resolve("large.txt"), Answer::text("abc"));
        mock
    }

    fn resolve(path: &str) -> String {
        format!("/datasets/o/n/resolve/{COMMIT}/{path}")
    }

    fn source(mock: &Mock, token: &str) -> Hub {
        let endpoint = mock.at("");
        let web = mock.web(&[("HF_ENDPOINT", &endpoint), ("HF_TOKEN", token)]);
        Hub::open(&web, &[format!("o/n@{COMMIT}")], &[], 10).unwrap()
    }

    #[tokio::test]
    async fn all_pages_of_a_tree_are_collected_with_the_cards_license() {
        let mock = mock().await;
        let seen = collect(&source(&mock, "hf_t")).await.unwrap();
        let origin = format!("CC-BY-4.0 hf:datasets/o/n@{COMMIT}");
        assert_eq!(
            seen,
            [
                format!("{origin}#data/b c.csv"),
                format!("{origin}#large.txt")
            ]
        );
        let asked = mock.asked();
        assert!(
            asked
                .iter()
                .all(|ask| ask.header("authorization") == "Bearer hf_t")
        );
        assert!(
            asked[1].path.ends_with("?recursive=true"),
            "{}",
            asked[1].path
        );
        let anonymous = source(&mock, " ");
        collect(&anonymous).await.unwrap();
        assert_eq!(mock.asked().last().unwrap().header("authorization"), "");
    }

    #[tokio::test]
    async fn failures_have_reasons() {
        let about = format!("/api/datasets/o/n/revision/{COMMIT}");
        let tree = format!("/api/datasets/o/n/tree/{COMMIT}");
        let file = resolve("large.txt");
        for (path, answer, reason, retryable) in [
            (&about, Answer::status(401), "HF_TOKEN", false),
            (&about, Answer::status(403), "accept its terms", false),
            (&about, Answer::status(404), "404", false),
            (
                &about,
                Answer::json("<!doctype html>"),
                "unexpected response",
                true,
            ),
            (
                &tree,
                Answer::status(429).with("retry-after", "2"),
                "429",
                true,
            ),
            (&tree, Answer::json("{}"), "unexpected response", true),
            (
                &tree,
                Answer::json("[]").with("link", &format!("<{tree}>; rel=\"next\"")),
                "more than 50 pages",
                false,
            ),
            (&file, Answer::status(503), "503", true),
            (&file, Answer::text("abd"), "SHA-256 differs", true),
            (
                &file,
                Answer::text("version https://git-lfs"),
                "23 bytes received",
                true,
            ),
            (&file, Answer::text("abc").cut(1), "connection lost", true),
        ] {
            let mock = mock().await;
            mock.on(path, answer);
            let failed = collect(&source(&mock, "")).await.unwrap_err();
            assert!(
                failed.detail.contains(reason),
                "{reason}: {}",
                failed.detail
            );
            assert_eq!(failed.retryable, retryable, "{reason}");
        }
        let mock = mock().await;
        mock.on(&file, Answer::status(403));
        let seen = collect(&source(&mock, "")).await.unwrap();
        assert!(
            seen[1].starts_with("left ") && seen[1].contains("HF_TOKEN"),
            "{seen:?}"
        );
    }

    #[tokio::test]
    async fn an_endpoint_that_is_not_a_url_is_rejected() {
        let mock = Mock::start().await;
        let web = mock.web(&[("HF_ENDPOINT", "nowhere")]);
        assert!(Hub::open(&web, &[], &[], 1).is_err());
    }

    /// Fetches one small file from huggingface.co.
    #[tokio::test]
    #[ignore = "needs the network"]
    async fn live_service() {
        let cache = tempfile::tempdir().unwrap();
        let web = HttpClient::new(cache.path());
        // Look up the current commit, as a user would.
        let pace = web.throttle("hub", Duration::ZERO, 1);
        let service =
            Service::new(&web, ENDPOINT, web.credentials().hub().unwrap(), pace, HELP).unwrap();
        let url = service.url(["api", "datasets", "stanfordnlp", "imdb"], &[]);
        let (about, _) = service.json::<serde_json::Value>(url).await.unwrap();
        let pinned = format!("stanfordnlp/imdb@{}", about["sha"].as_str().unwrap());
        let source = Hub::open(&web, &[pinned], &["README.md".to_owned()], 1).unwrap();
        let seen = collect(&source).await.unwrap();
        assert!(seen[0].ends_with("#README.md"), "{seen:?}");
    }

    #[test]
    fn licenses_are_found_on_cards_and_tags() {
        let license = |text: &str| license(&serde_json::from_str::<LicenseInfo>(text).unwrap());
        assert_eq!(
            license(r#"{"cardData": {"license": "mit"}}"#).as_deref(),
            Some("MIT")
        );
        let two = r#"{"cardData": {"license": ["cc-by-4.0", "odc-by"]}}"#;
        assert_eq!(license(two).as_deref(), Some("CC-BY-4.0 AND ODC-By-1.0"));
        let tag = r#"{"cardData": null, "tags": ["x", "license:apache-2.0"]}"#;
        assert_eq!(license(tag).as_deref(), Some("Apache-2.0"));
        assert_eq!(license("{}"), None);
    }

    #[test]
    fn fuzz_answers() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(card) = serde_json::from_slice::<LicenseInfo>(bytes) {
                let _ = license(&card);
            }
            if let Ok(entries) = serde_json::from_slice::<Vec<TreeEntry>>(bytes) {
                let files = entries.into_iter().filter_map(TreeEntry::file);
                files.map(listed).for_each(drop);
            }
        });
    }
}
