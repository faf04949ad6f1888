//! The HTTP client of all crates: handles rate limits, size limits, caching, resuming and authentication.
//! Credentials are sent only to their service.

// The mock service of the tests names this crate as other crates do.
#[cfg(test)]
extern crate self as pybench_net;

pub mod blocking;
mod credentials;
mod download;
mod download_cache;
mod file_name;
pub mod git_origin;
pub mod headers;
pub mod origin;
mod public;
pub mod pypi;
mod throttle;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pybench_run::{Crawl, Failure, FailureKind};
use reqwest::{Client, ClientBuilder, StatusCode, Url};
use serde::de::DeserializeOwned;

pub use credentials::{Auth, Credentials};
pub use download::Download;
pub use download::Fetched;
use download::{FetchRequest, SizeLimit, fetch, fetch_with_cache_entry};
pub use file_name::file_name;
use pybench_files::name::printable;
pub use throttle::Throttle;

/// Maximum size of a listing, bytes.
const MAX_LISTING: u64 = 16 << 20;
/// Timeout of a request, unless a service sets another.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Size limits of downloads.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum size of a file, bytes.
    pub file: u64,
    /// Maximum total size of the files of an item, and of its download, bytes.
    pub total: u64,
}

impl Limits {
    /// The limits of a recipe.
    pub fn of(crawl: &Crawl) -> Self {
        let bytes = |mib: u64| mib.saturating_mul(1 << 20);
        Self {
            file: bytes(crawl.file_mib),
            total: bytes(crawl.total_mib),
        }
    }
}

/// HTTP client with cache, throttles and credentials, shared by all sources of a run.
pub struct HttpClient {
    /// Created on first use, because without a network there may be no certificates.
    client: OnceLock<Client>,
    cache: PathBuf,
    /// Throttles by name of the service.
    throttles: Mutex<BTreeMap<&'static str, Arc<Throttle>>>,
    credentials: Credentials,
    /// Upper bound of all throttle intervals, so that tests are fast.
    max_interval: Duration,
    /// Whether it connects to public addresses only.
    public_only: bool,
}

impl HttpClient {
    /// A client with downloads cached in `cache` and the credentials of this process's environment.
    pub fn new(cache: &Path) -> Arc<Self> {
        Self::with_credentials(cache, Credentials::of_this_process(), Duration::MAX)
    }

    pub fn with_credentials(
        cache: &Path,
        credentials: Credentials,
        max_interval: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            max_interval,
            ..Self::any(cache, credentials)
        })
    }

    /// A client for URLs that come from a dataset: without credentials, and for public addresses only.
    pub fn public_only(cache: &Path) -> Arc<Self> {
        Arc::new(Self {
            public_only: true,
            ..Self::any(cache, Credentials::of(&[]))
        })
    }

    fn any(cache: &Path, credentials: Credentials) -> Self {
        Self {
            client: OnceLock::new(),
            cache: cache.to_owned(),
            throttles: Mutex::default(),
            credentials,
            max_interval: Duration::MAX,
            public_only: false,
        }
    }

    fn client(&self) -> reqwest::Result<&Client> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let mut builder = client()
            .read_timeout(Duration::from_secs(30))
            .timeout(TIMEOUT);
        if self.public_only {
            builder = public::restrict(builder);
        }
        let client = builder.build()?;
        Ok(self.client.get_or_init(|| client))
    }

    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// The throttle of a service, shared by all its users.
    pub fn throttle(
        &self,
        name: &'static str,
        interval: Duration,
        connections: usize,
    ) -> Arc<Throttle> {
        let mut throttles = self
            .throttles
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Throttle::new(interval.min(self.max_interval), connections));
        throttles.entry(name).or_insert_with(new).clone()
    }

    /// Downloads a URL of a recipe.
    pub async fn get(&self, url: &str, limits: Limits) -> Result<Fetched, FetchError> {
        let url = Url::parse(url).map_err(|e| FetchError::Refused(format!("not a URL: {e}")))?;
        if self.public_only {
            public::check(&url).map_err(FetchError::Refused)?;
        }
        fetch(
            self,
            FetchRequest {
                url,
                auth: &Auth::None,
                help: "",
                throttle: None,
                size_limit: SizeLimit::File(limits),
                expected: &Expected::default(),
                timeout: TIMEOUT,
            },
        )
        .await
    }
}

/// Common settings of all HTTP clients; each client sets its own timeouts.
pub fn client() -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("pybench/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(10))
        .redirect(reqwest::redirect::Policy::custom(redirect))
}

/// Follows at most five redirects, and none from https to http. reqwest does not send credentials to another
/// host.
fn redirect(attempt: reqwest::redirect::Attempt<'_>) -> reqwest::redirect::Action {
    let was = attempt.previous().last().map(Url::scheme);
    if attempt.previous().len() > 5 {
        attempt.error("too many redirects")
    } else if was == Some("https") && attempt.url().scheme() != "https" {
        attempt.error("a redirect from https to http")
    } else {
        attempt.follow()
    }
}

/// Why a download failed.
#[derive(Debug)]
pub enum FetchError {
    /// Permanent: 404, too large, invalid URL.
    Refused(String),
    /// Temporary: no connection, 5xx, 429; another attempt may succeed.
    Failed(Failure),
}

impl FetchError {
    /// The reason as text.
    pub fn into_message(self) -> String {
        match self {
            Self::Refused(reason) => reason,
            Self::Failed(failure) => failure.detail,
        }
    }

    /// The failure of an item that needs this download.
    pub fn into_item_failure(self, item: &str) -> Failure {
        match self {
            Self::Refused(reason) => Failure::new(FailureKind::Item, format!("{item}: {reason}")),
            Self::Failed(failure) => failure,
        }
    }
}

/// Size and hash from a listing, against which a download is checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expected {
    pub size: Option<u64>,
    pub sha256: Option<String>,
}

/// A service on the network.
#[derive(Clone)]
pub struct Service {
    web: Arc<HttpClient>,
    base: Url,
    auth: Auth,
    throttle: Arc<Throttle>,
    /// Hint for the user if the status is 401 or 403.
    help: &'static str,
    /// Maximum duration of a request.
    timeout: Duration,
}

impl Service {
    /// A service at the URL `base`.
    ///
    /// # Errors
    /// A `base` that is not an http or https URL.
    pub fn new(
        web: &Arc<HttpClient>,
        base: &str,
        auth: Auth,
        throttle: Arc<Throttle>,
        help: &'static str,
    ) -> Result<Self, Failure> {
        let wrong = |reason: String| {
            let text = format!("{}: {reason}", printable(base));
            Failure::new(FailureKind::Item, text)
        };
        let base = Url::parse(base).map_err(|error| wrong(error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") {
            return Err(wrong("neither http nor https".into()));
        }
        Ok(Self {
            web: web.clone(),
            base,
            auth,
            throttle,
            help,
            timeout: TIMEOUT,
        })
    }

    /// Sets the timeout of requests.
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// A URL below the base, with these path segments (any text) and this query.
    pub fn url<'a>(&self, path: impl IntoIterator<Item = &'a str>, query: &[(&str, &str)]) -> Url {
        let mut url = self.base.clone();
        // An http URL always has a path.
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    fn request<'a>(
        &'a self,
        url: Url,
        size_limit: SizeLimit,
        expected: &'a Expected,
    ) -> FetchRequest<'a> {
        FetchRequest {
            url,
            auth: &self.auth,
            help: self.help,
            throttle: Some(&self.throttle),
            size_limit,
            expected,
            timeout: self.timeout,
        }
    }

    /// Fetches a listing and the URL of its next page.
    pub async fn text(&self, url: Url) -> Result<(String, Option<Url>), FetchError> {
        let (shown, expected) = (display_url(&url), Expected::default());
        let mut got = fetch(&self.web, self.request(url, SizeLimit::Listing, &expected)).await?;
        let next = got.next.as_deref().and_then(|next| Url::parse(next).ok());
        Ok((read(&mut got.file, &shown)?, next))
    }

    /// Fetches a JSON listing and the URL of its next page.
    pub async fn json<T: DeserializeOwned>(
        &self,
        url: Url,
    ) -> Result<(T, Option<Url>), FetchError> {
        let shown = display_url(&url);
        let (text, next) = self.text(url).await?;
        let parsed = serde_json::from_str(&text);
        Ok((
            parsed.map_err(|error| unexpected_response(&shown, &error))?,
            next,
        ))
    }

    /// Downloads a file.
    pub async fn download(
        &self,
        url: Url,
        expected: &Expected,
        limits: Limits,
    ) -> Result<Fetched, FetchError> {
        let request = self.request(url, SizeLimit::File(limits), expected);
        fetch(&self.web, request).await
    }

    /// Downloads a file that will be moved out of the cache.
    pub async fn download_to_move(
        &self,
        url: Url,
        expected: &Expected,
        limits: Limits,
    ) -> Result<Download, FetchError> {
        let request = self.request(url, SizeLimit::File(limits), expected);
        fetch_with_cache_entry(&self.web, request).await
    }
}

fn read(file: &mut File, shown: &str) -> Result<String, FetchError> {
    let mut bytes = Vec::new();
    let read = file.take(MAX_LISTING).read_to_end(&mut bytes);
    read.map_err(|error| unexpected_response(shown, &error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The error of a response in an unexpected format, such as a login page or a new version of the API.
pub fn unexpected_response(shown: &str, error: &dyn std::fmt::Display) -> FetchError {
    let text = format!("{shown}: unexpected response: {error}");
    FetchError::Failed(Failure::new(FailureKind::Internal, printable(&text)).retryable())
}

/// A URL without the parts that may contain secrets: user, password, query, fragment.
pub fn display_url(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for URLs without a host, which have no user either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    printable(url.as_str())
}

/// An error with its causes, which reqwest's own message leaves out, and without the URL.
pub fn error_chain(error: &reqwest::Error) -> String {
    let mut text = if error.is_timeout() {
        "timed out".to_owned()
    } else {
        "failed".to_owned()
    };
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// The message for an error status.
fn status_message(status: StatusCode, help: &str) -> String {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if !help.is_empty() => {
            format!("the server answered {status}: {help}")
        }
        _ => format!("the server answered {status}"),
    }
}

#[cfg(test)]
mod tests;
