//! Downloads a single file that is pinned by its SHA-256, and caches it under that hash.

use std::path::{Path, PathBuf};

use pybench_run::RunError;
use reqwest::Url;

use super::download::download;
use super::{Hub, Kind};
use pybench_net::Expected;
use pybench_net::Limits;

/// A file of a repository, pinned by its SHA-256.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubFile {
    pub kind: Kind,
    /// `owner/name`.
    pub repository: String,
    /// A commit, branch or tag.
    pub revision: String,
    /// The path inside the repository.
    pub path: String,
    /// In lower-case hexadecimal.
    pub sha256: String,
}

impl HubFile {
    /// Parses `hf://datasets/OWNER/NAME@REVISION/PATH#sha256=DIGEST`; without `datasets/` it is a model repository.
    ///
    /// # Errors
    /// The expected form.
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

    /// Whether every part has only plain characters, so that no part changes the structure of the URL.
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

    /// The last component of the path.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    fn url(&self, hub: &Hub) -> Url {
        hub.file_url(self.kind, &self.repository, &self.revision, &self.path)
    }

    /// Returns the path of the file in the cache, after downloading it if necessary. The endpoint is
    /// `HF_ENDPOINT`; the token is that of `HF_TOKEN` or of the Hub's token file, if there is one.
    ///
    /// # Errors
    /// [`RunError::Environment`] if the download fails or the file has more than `max_bytes`;
    /// [`RunError::BadInput`] if the file has a different SHA-256.
    pub async fn fetch(&self, cache: &Path, max_bytes: u64) -> Result<PathBuf, RunError> {
        let path = self.cache_path(cache);
        if path.is_file() {
            return Ok(path);
        }
        self.fetch_from(&Hub::from_env()?, cache, max_bytes).await
    }

    /// The file keeps its name, because readers detect the format by it.
    fn cache_path(&self, cache: &Path) -> PathBuf {
        cache.join("hub").join(&self.sha256).join(self.name())
    }

    async fn fetch_from(
        &self,
        hub: &Hub,
        cache: &Path,
        max_bytes: u64,
    ) -> Result<PathBuf, RunError> {
        let cached = self.cache_path(cache);
        if cached.is_file() {
            return Ok(cached);
        }
        let (url, expected) = (self.url(hub), Expected::default());
        let limits = Limits {
            file: max_bytes,
            total: max_bytes,
        };
        let service = hub.service(cache)?;
        let download = download(&service, &url, &expected, limits).await;
        let download = download.map_err(|error| {
            RunError::Environment(format!(
                "{url}: {}; check the repository, the revision and the path",
                error.into_message()
            ))
        })?;
        if download.sha256() != self.sha256 {
            let text = format!(
                "{url} has SHA-256 {}, not the pinned {}",
                download.sha256(),
                self.sha256
            );
            download.discard();
            return Err(RunError::BadInput(text));
        }
        let placed = download.move_to(&cached);
        placed.map_err(RunError::io(cached.display().to_string()))?;
        Ok(cached)
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
        Hub::with_credentials(&pybench_net::Credentials::of(&variables)).unwrap()
    }

    #[test]
    fn valid_names_are_parsed_and_invalid_ones_rejected() {
        let digest = "A".repeat(64);
        let found = file(&digest);
        assert_eq!(
            found.url(&hub("http://h/", None)).as_str(),
            "http://h/datasets/o/n/resolve/abc/data/a.jsonl"
        );
        assert_eq!(
            (found.name(), &*found.sha256),
            ("a.jsonl", &*"a".repeat(64))
        );
        let model = HubFile::parse(&format!("hf://o/n@main/a.gguf#sha256={digest}")).unwrap();
        assert_eq!(
            model.url(&hub("http://h", None)).as_str(),
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
    async fn fetched_files_are_verified_and_cached() {
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
        assert_eq!(files.count(), 1, "failed downloads leave nothing behind");
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
