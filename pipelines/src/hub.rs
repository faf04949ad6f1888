//! The Hugging Face Hub: single files by its `resolve` route, and repositories to write.
//!
//! A file that is pinned by its SHA-256 is kept in the cache by it, and asked for once. Writing is the Hub's
//! documented HTTP routes; `ARCHITECTURE.md` says why not the crate hf-hub.

mod client;
mod commit;
mod content;
mod lfs;
mod refusal;
mod repository;

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt as _;
use pybench::run::RunError;
use reqwest::Response;
use sha2::{Digest as _, Sha256};

pub use client::Hub;
pub use commit::Change;
pub use content::{Content, Source};
pub use lfs::Sent;
pub use refusal::{Refusal, Why};
pub use repository::{About, BRANCH, Kept, Mode, Repository};

/// A large model over a slow line.
const PATIENCE: Duration = Duration::from_secs(6 * 3600);

/// What a repository holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A model.
    Model,
    /// A dataset.
    Dataset,
}

impl Kind {
    /// Before the names of its repositories.
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Model => "",
            Self::Dataset => "datasets/",
        }
    }

    /// The part of a path before those names.
    fn folder(self) -> Option<&'static str> {
        match self {
            Self::Model => None,
            Self::Dataset => Some("datasets"),
        }
    }

    /// What one is called.
    pub fn word(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Dataset => "dataset",
        }
    }

    fn plural(self) -> &'static str {
        match self {
            Self::Model => "models",
            Self::Dataset => "datasets",
        }
    }
}

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

    fn address(&self, hub: &Hub) -> reqwest::Url {
        let parts = self.kind.folder().into_iter();
        let parts = parts.chain(self.repository.split('/'));
        let parts = parts.chain(["resolve", &self.revision]);
        hub.url(parts.chain(self.path.split('/')))
    }

    /// The file in the cache, which is asked first; at most `most` bytes of it. `HF_ENDPOINT` names the Hub,
    /// the token of `HF_TOKEN` or of the Hub's own file is sent to it where there is one.
    ///
    /// # Errors
    /// [`RunError::Environment`] where the Hub cannot be reached or refuses; [`RunError::BadInput`] for
    /// a file that is larger or has another SHA-256.
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
        let folder = cache.join("hub").join(&self.sha256);
        let url = self.address(hub);
        let address = url.to_string();
        let ask = || hub.get(url.clone()).timeout(PATIENCE);
        let response = hub.ask(&address, ask).await.map_err(unavailable)?;
        std::fs::create_dir_all(&folder).map_err(RunError::io(folder.display().to_string()))?;
        let file = tempfile::NamedTempFile::new_in(&folder)
            .map_err(RunError::io(folder.display().to_string()))?;
        let (file, found) = save(response, file, most, &address).await?;
        if found != self.sha256 {
            return Err(RunError::BadInput(format!(
                "{address} has SHA-256 {found}, not the pinned {}",
                self.sha256
            )));
        }
        file.persist(&place)
            .map_err(|error| RunError::io(place.display().to_string())(error.error))?;
        Ok(place)
    }
}

fn unavailable(refusal: Refusal) -> RunError {
    let way_out = match refusal.why {
        Why::Nobody | Why::Token | Why::Forbidden => {
            "; its terms may have to be accepted on its page"
        }
        Why::Missing => "; is there such a repository, revision and file?",
        _ => "",
    };
    RunError::Environment(format!("{refusal}{way_out}"))
}

/// The body in a file, and its SHA-256.
async fn save(
    response: Response,
    mut file: tempfile::NamedTempFile,
    most: u64,
    address: &str,
) -> Result<(tempfile::NamedTempFile, String), RunError> {
    let (mut hasher, mut size) = (Sha256::new(), 0_u64);
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            let said = crate::crawl::source::web::chain(&error);
            unavailable(Refusal::new(address, Why::Unreachable, said))
        })?;
        size += chunk.len() as u64;
        if size > most {
            let text = format!("{address}: larger than {} MiB", most >> 20);
            return Err(RunError::BadInput(text));
        }
        hasher.update(&chunk);
        file.write_all(&chunk)
            .map_err(RunError::io(address.to_owned()))?;
    }
    Ok((file, hexadecimal(&hasher.finalize())))
}

/// The SHA-256 of a file.
pub(crate) fn sha256(path: &Path) -> std::io::Result<String> {
    let (mut file, mut hasher) = (File::open(path)?, Sha256::new());
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hexadecimal(&hasher.finalize())),
            read => hasher.update(&buffer[..read]),
        }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
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
