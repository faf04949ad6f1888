//! Dataset repositories on the Hugging Face Hub, at a commit.
//!
//! By its plain HTTP routes: the tree of the commit, the card's licence, and each file by itself.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pybench::run::Failure;

use super::licence::spdx;
use super::listing::{Choice, Listed, pinned, take};
use super::web::{Service, Trouble, Web};
use super::{Outlet, Source};
use crate::hub::{Entry, Kept, Licensed};

/// Where it is, unless `HF_ENDPOINT` names another.
const ENDPOINT: &str = "https://huggingface.co";
const HELP: &str = "no such dataset, or one that is private or gated: accept its terms on its page, and set \
                    HF_TOKEN to a token that may read it";
/// Most pages of a tree, each of up to 1,000 entries.
const MAX_PAGES: usize = 50;

/// One item per repository.
pub(super) struct Hub {
    service: Service,
    datasets: Vec<String>,
    choice: Choice,
}

impl Hub {
    pub(super) fn open(
        web: &Arc<Web>,
        datasets: &[String],
        include: &[String],
        files: usize,
    ) -> Result<Self, Failure> {
        let named = web.surroundings().variable("HF_ENDPOINT");
        let base = named.as_deref().unwrap_or(ENDPOINT);
        let auth = web.surroundings().hub()?;
        let pace = web.pace("hub", Duration::from_millis(300), 2);
        Ok(Self {
            service: Service::new(web, base, auth, pace, HELP)?,
            datasets: datasets.to_vec(),
            choice: Choice::new(include, files)?,
        })
    }

    async fn licence(&self, name: &str, commit: &str) -> Result<Option<String>, Trouble> {
        let path = ["api", "datasets"].into_iter().chain(name.split('/'));
        let url = self.service.url(path.chain(["revision", commit]), &[]);
        let (card, _) = self.service.json::<Licensed>(url).await?;
        Ok(licence(&card))
    }

    async fn tree(&self, name: &str, commit: &str) -> Result<Vec<Listed>, Trouble> {
        let path = ["api", "datasets"].into_iter().chain(name.split('/'));
        let path = path.chain(["tree", commit]);
        let mut url = self.service.url(path, &[("recursive", "true")]);
        let mut files = Vec::new();
        for _ in 0..MAX_PAGES {
            let (entries, next) = self.service.json::<Vec<Entry>>(url).await?;
            files.extend(entries.into_iter().filter_map(Entry::file).map(listed));
            match next {
                Some(next) => url = next,
                None => return Ok(files),
            }
        }
        Err(Trouble::Refused(format!(
            "its tree has more than {MAX_PAGES} pages"
        )))
    }
}

#[async_trait]
impl Source for Hub {
    fn items(&self) -> Vec<String> {
        self.datasets.clone()
    }

    async fn collect(&self, item: &str, outlet: Outlet) -> Result<(), Failure> {
        let (name, commit) = pinned(item)?;
        let of_item = |trouble: Trouble| trouble.of_item(item);
        let outlet = outlet.under(self.licence(name, commit).await.map_err(of_item)?);
        let files = self.tree(name, commit).await.map_err(of_item)?;
        let origin = format!("hf:datasets/{name}@{commit}");
        let place = |path: &str| {
            let parts = ["datasets"].into_iter().chain(name.split('/'));
            let parts = parts.chain(["resolve", commit]).chain(path.split('/'));
            self.service.url(parts, &[])
        };
        take(&self.service, &outlet, &origin, &self.choice, files, place).await
    }
}

/// The licence of all that a card names, as an SPDX expression.
fn licence(card: &Licensed) -> Option<String> {
    let names = card.named().into_iter().take(10).filter_map(spdx);
    let names: Vec<String> = names.collect();
    (!names.is_empty()).then(|| names.join(" AND "))
}

fn listed((path, kept): (String, Kept)) -> Listed {
    let expected = kept.expected();
    Listed { path, expected }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crawl::source::mock::{Answer, Mock, collect};

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
    async fn all_pages_of_a_tree_are_taken_with_the_cards_licence() {
        let mock = mock().await;
        let seen = mock.collect(&source(&mock, "hf_t")).await.unwrap();
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
        mock.collect(&anonymous).await.unwrap();
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
                "not of the expected form",
                true,
            ),
            (
                &tree,
                Answer::status(429).with("retry-after", "2"),
                "429",
                true,
            ),
            (&tree, Answer::json("{}"), "not of the expected form", true),
            (
                &tree,
                Answer::json("[]").with("link", &format!("<{tree}>; rel=\"next\"")),
                "more than 50 pages",
                false,
            ),
            (&file, Answer::status(503), "503", true),
            (&file, Answer::text("abd"), "another SHA-256", true),
            (
                &file,
                Answer::text("version https://git-lfs"),
                "has 23 bytes",
                true,
            ),
            (&file, Answer::text("abc").cut(1), "broke off", true),
        ] {
            let mock = mock().await;
            mock.on(path, answer);
            let failed = mock.collect(&source(&mock, "")).await.unwrap_err();
            assert!(
                failed.detail.contains(reason),
                "{reason}: {}",
                failed.detail
            );
            assert_eq!(failed.retryable, retryable, "{reason}");
        }
        let mock = mock().await;
        mock.on(&file, Answer::status(403));
        let seen = mock.collect(&source(&mock, "")).await.unwrap();
        assert!(
            seen[1].starts_with("left ") && seen[1].contains("HF_TOKEN"),
            "{seen:?}"
        );
    }

    #[tokio::test]
    async fn an_endpoint_that_is_no_url_is_refused_at_once() {
        let mock = Mock::start().await;
        let web = mock.web(&[("HF_ENDPOINT", "nowhere")]);
        assert!(Hub::open(&web, &[], &[], 1).is_err());
    }

    /// Asks the Hub itself for one small file.
    #[tokio::test]
    #[ignore = "needs the network"]
    async fn true_service() {
        let cache = tempfile::tempdir().unwrap();
        let web = Web::new(cache.path());
        // A commit of today, asked as a user would.
        let pace = web.pace("hub", Duration::ZERO, 1);
        let service = Service::new(
            &web,
            ENDPOINT,
            web.surroundings().hub().unwrap(),
            pace,
            HELP,
        )
        .unwrap();
        let url = service.url(["api", "datasets", "stanfordnlp", "imdb"], &[]);
        let (about, _) = service.json::<serde_json::Value>(url).await.unwrap();
        let pinned = format!("stanfordnlp/imdb@{}", about["sha"].as_str().unwrap());
        let source = Hub::open(&web, &[pinned], &["README.md".to_owned()], 1).unwrap();
        let seen = collect(&source).await.unwrap();
        assert!(seen[0].ends_with("#README.md"), "{seen:?}");
    }

    #[test]
    fn licences_are_found_on_cards_and_tags() {
        let licence = |text: &str| licence(&serde_json::from_str::<Licensed>(text).unwrap());
        assert_eq!(
            licence(r#"{"cardData": {"license": "mit"}}"#).as_deref(),
            Some("MIT")
        );
        let two = r#"{"cardData": {"license": ["cc-by-4.0", "odc-by"]}}"#;
        assert_eq!(licence(two).as_deref(), Some("CC-BY-4.0 AND ODC-By-1.0"));
        let tag = r#"{"cardData": null, "tags": ["x", "license:apache-2.0"]}"#;
        assert_eq!(licence(tag).as_deref(), Some("Apache-2.0"));
        assert_eq!(licence("{}"), None);
    }

    #[test]
    fn fuzz_answers() {
        bolero::check!().for_each(|bytes: &[u8]| {
            if let Ok(card) = serde_json::from_slice::<Licensed>(bytes) {
                let _ = licence(&card);
            }
            if let Ok(entries) = serde_json::from_slice::<Vec<Entry>>(bytes) {
                let files = entries.into_iter().filter_map(Entry::file);
                files.map(listed).for_each(drop);
            }
        });
    }
}
