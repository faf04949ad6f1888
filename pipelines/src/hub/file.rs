//! One file of the Hub that is pinned by its SHA-256: kept in the cache by it, and asked for once.

use std::path::{Path, PathBuf};

use pybench::run::RunError;
use reqwest::Url;

use super::download::download;
use super::{Hub, Kind};
use crate::crawl::source::Limits;
use crate::crawl::source::web::Expected;

/// A file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubFile {
    /// What the repository holds.
    pub kind: Kind,
    /// `owner/name`.
    pub repository: String,
    /// A commit, branch or tag.
    pub revision: String,
    /// The path inside.
    pub path: String,
    /// Lower-case hexadecimal digits.
    pub sha256: String,
}

impl HubFile {
    /// `hf://datasets/OWNER/NAME@REVISION/PATH#sha256=DIGEST`; without `datasets/` a model's.
    ///
    /// # Errors
    /// What is missing.
    pub fn parse(text: &str) -> Result<Self, String> {
        const FORM: &str = "expected hf://[datasets/]OWNER/NAME@REVISION/PATH#sha256=DIGEST";
        let wrong = || format!("{text}: {FORM}");
        let rest = text.strip_prefix("hf://").ok_or_else(wrong)?;
        let (kind, rest) = match rest.strip_prefix("datasets/") {
            Some(rest) => (Kind::Dataset, rest),
            None => (Kind::Model, rest),
        };
        let (rest, sha256) = rest.split_once("#sha256=").ok_or_else(wrong)?;
        let (repository, rest) = rest.split_once('@').ok_or_else(wrong)?;
        let (revision, path) = rest.split_once('/').ok_or_else(wrong)?;
        let file = Self {
            kind,
            repository: repository.to_owned(),
            revision: revision.to_owned(),
            path: path.to_owned(),
            sha256: sha256.to_ascii_lowercase(),
        };
        match file.is_plain() {
            true => Ok(file),
            false => Err(wrong()),
        }
    }

    /// Whether every part is what its name says, so that no part says more than it should in an address.
    fn is_plain(&self) -> bool {
        let word = |text: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            !text.is_empty() && text.chars().all(plain) && text != ".." && text != "."
        };
        let hexadecimal = |c: char| c.is_ascii_hexdigit();
        self.repository.split('/').count() == 2
            && self.repository.split('/').all(word)
            && word(&self.revision)
            && self.path.split('/').all(word)
            && self.sha256.len() == 64
            && self.sha256.chars().all(hexadecimal)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    fn address(&self, hub: &Hub) -> Url {
        hub.file(self.kind, &self.repository, &self.revision, &self.path)
    }

    /// The file in the cache, which is asked first; at most `most` bytes of it. `HF_ENDPOINT` names the Hub,
    /// the token of `HF_TOKEN` or of the Hub's own file is sent to it where there is one.
    ///
    /// # Errors
    /// [`RunError::Environment`] where the Hub cannot be reached, refuses, or has a larger file;
    /// [`RunError::BadInput`] for a file that has another SHA-256.
    pub async fn fetch(&self, cache: &Path, most: u64) -> Result<PathBuf, RunError> {
        let place = self.place(cache);
        if place.is_file() {
            return Ok(place);
        }
        self.fetch_from(&Hub::of_this_process()?, cache, most).await
    }

    /// Under its name, because readers know formats by it.
    fn place(&self, cache: &Path) -> PathBuf {
        cache.join("hub").join(&self.sha256).join(self.name())
    }

    async fn fetch_from(&self, hub: &Hub, cache: &Path, most: u64) -> Result<PathBuf, RunError> {
        let place = self.place(cache);
        if place.is_file() {
            return Ok(place);
        }
        let (url, expected) = (self.address(hub), Expected::default());
        let limits = Limits {
            file: most,
            total: most,
        };
        let service = hub.service(cache)?;
        let parcel = download(&service, &url, &expected, limits).await;
        let parcel = parcel.map_err(|trouble| {
            RunError::Environment(format!(
                "{url}: {}; is there such a repository, revision and file?",
                trouble.in_words()
            ))
        })?;
        if parcel.sha256() != self.sha256 {
            let text = format!(
                "{url} has SHA-256 {}, not the pinned {}",
                parcel.sha256(),
                self.sha256
            );
            parcel.discard();
            return Err(RunError::BadInput(text));
        }
        let placed = parcel.place(&place);
        placed.map_err(RunError::io(place.display().to_string()))?;
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(sha256: &str) -> HubFile {
        let text = format!("hf://datasets/o/n@abc/data/a.jsonl#sha256={sha256}");
        HubFile::parse(&text).unwrap()
    }

    fn hub(endpoint: &str, token: Option<&str>) -> Hub {
        let mut variables = vec![("HF_ENDPOINT", endpoint)];
        variables.extend(token.map(|token| ("HF_TOKEN", token)));
        Hub::within(&crate::crawl::source::web::Surroundings::of(&variables)).unwrap()
    }

    #[test]
    fn names_are_read_and_wrong_ones_refused() {
        let digest = "A".repeat(64);
        let found = file(&digest);
        assert_eq!(
            found.address(&hub("http://h/", None)).as_str(),
            "http://h/datasets/o/n/resolve/abc/data/a.jsonl"
        );
        assert_eq!(
            (found.name(), &*found.sha256),
            ("a.jsonl", &*"a".repeat(64))
        );
        let model = HubFile::parse(&format!("hf://o/n@main/a.gguf#sha256={digest}")).unwrap();
        assert_eq!(
            model.address(&hub("http://h", None)).as_str(),
            "http://h/o/n/resolve/main/a.gguf"
        );
        for wrong in [
            "a.jsonl".to_owned(),
            "hf://o/n@main/a.gguf".to_owned(),
            format!("hf://o/n/a.gguf#sha256={digest}"),
            format!("hf://o@main/a.gguf#sha256={digest}"),
            format!("hf://o/n@main/../a#sha256={digest}"),
            format!("hf://o/n@main/a?b#sha256={digest}"),
            "hf://o/n@main/a#sha256=12".to_owned(),
        ] {
            let error = HubFile::parse(&wrong).unwrap_err();
            assert!(error.contains("expected hf://"), "{error}");
        }
    }

    #[tokio::test]
    async fn what_is_fetched_is_checked_and_kept() {
        use axum::http::{HeaderMap, StatusCode};
        let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = asked.clone();
        let answer = move |headers: HeaderMap, uri: axum::http::Uri| {
            let key = headers
                .get("authorization")
                .map(|v| v.to_str().unwrap().to_owned());
            seen.lock().unwrap().push((uri.path().to_owned(), key));
            async move {
                match uri.path().ends_with("a.jsonl") {
                    true => (StatusCode::OK, "12345"),
                    false => (StatusCode::NOT_FOUND, ""),
                }
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let router = axum::Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let cache = tempfile::tempdir().unwrap();
        let right = "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5";
        for _ in 0..2 {
            let got = file(right)
                .fetch_from(&hub(&endpoint, Some("t")), cache.path(), 5)
                .await;
            assert_eq!(std::fs::read(got.unwrap()).unwrap(), b"12345");
        }
        let path = "/datasets/o/n/resolve/abc/data/a.jsonl".to_owned();
        assert_eq!(
            *asked.lock().unwrap(),
            [(path, Some("Bearer t".to_owned()))]
        );
        let other = file(&"0".repeat(64))
            .fetch_from(&hub(&endpoint, None), cache.path(), 9)
            .await;
        assert!(
            other
                .unwrap_err()
                .to_string()
                .contains("not the pinned 000")
        );
        let large = file(&"1".repeat(64))
            .fetch_from(&hub(&endpoint, None), cache.path(), 4)
            .await;
        assert!(large.unwrap_err().to_string().contains("larger"));
        let absent = HubFile {
            path: "b".into(),
            ..file(right)
        };
        let here = hub(&endpoint, None);
        let absent = absent.fetch_from(&here, cache.path(), 9).await;
        assert!(absent.unwrap_err().to_string().contains("404"));
        let kept = std::fs::read_dir(cache.path().join("hub")).unwrap();
        let files = kept.flat_map(|entry| std::fs::read_dir(entry.unwrap().path()).unwrap());
        assert_eq!(files.count(), 1, "nothing is left of what failed");
        let gone = file(&"2".repeat(64));
        let nowhere = hub("http://127.0.0.1:9", None);
        let gone = gone.fetch_from(&nowhere, cache.path(), 9);
        assert!(matches!(gone.await, Err(RunError::Environment(_))));
    }

    #[test]
    fn fuzz_names_never_panic() {
        bolero::check!().for_each(|bytes: &[u8]| {
            let _ = HubFile::parse(&String::from_utf8_lossy(bytes));
        });
    }
}
