//! HTTP client for the Hub: endpoint, authentication, retries and limits.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use pybench_run::Failure;
use reqwest::header::CONTENT_LENGTH;
use reqwest::{Body, Client, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;
use tokio::process::Command;

use super::Kind;
pub(crate) use super::error::{HubError, HubErrorKind, read, retry_delay};
use pybench_net as web;
use pybench_net::{Auth, Credentials, HttpClient, Service};

/// The default endpoint; `HF_ENDPOINT` overrides it.
const ENDPOINT: &str = "https://huggingface.co";
/// Maximum time without a byte of the response.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum time without upload progress; also the maximum time that the Hub takes to process an upload.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(300);
/// Maximum number of attempts of a request.
const MAX_ATTEMPTS: u32 = 4;
/// Largest response body, in bytes.
const MAX_RESPONSE: usize = 64 << 20;
/// Time limit of one download; enough for a large model over a slow connection.
const DOWNLOAD_TIMEOUT: Duration = Duration::from_secs(6 * 3600);
/// Concurrent downloads.
pub(super) const MAX_DOWNLOADS: usize = 4;
/// Advice for a refused download.
const HELP: &str = "the repository does not exist, or it is private or gated: accept its terms on its page, and \
                    set HF_TOKEN to a token with read access";

/// A client of the Hub with its credentials.
#[derive(Clone, Debug)]
pub struct Hub {
    client: Client,
    /// For uploads: no read timeout.
    upload_client: Client,
    endpoint: Url,
    auth: Auth,
}

impl Hub {
    /// Reads `HF_ENDPOINT`, `HF_TOKEN` and the token file of the Hub's own tools.
    ///
    /// # Errors
    /// A malformed endpoint or token.
    pub fn from_env() -> Result<Self, HubError> {
        Self::with_credentials(&Credentials::of_this_process())
    }

    pub(crate) fn with_credentials(credentials: &Credentials) -> Result<Self, HubError> {
        let named = credentials.variable("HF_ENDPOINT");
        let endpoint = named.as_deref().unwrap_or(ENDPOINT);
        let wrong = |message: String| {
            HubError::new("setting up the Hub client", HubErrorKind::Local, message)
        };
        let url = Url::parse(endpoint).map_err(|e| wrong(format!("HF_ENDPOINT: {e}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("HF_ENDPOINT: expected an http or https URL".into()));
        }
        let auth = credentials.hub().map_err(|failure| wrong(failure.detail))?;
        let built =
            |client: reqwest::Result<Client>| client.map_err(|e| wrong(web::error_chain(&e)));
        Ok(Self {
            client: built(web::client().read_timeout(READ_TIMEOUT).build())?,
            upload_client: built(web::client().build())?,
            endpoint: url,
            auth,
        })
    }

    pub fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    /// The URL with these path segments, which are percent-encoded.
    pub(super) fn url<'a>(&self, path: impl IntoIterator<Item = &'a str>) -> Url {
        let mut url = self.endpoint.clone();
        // Cannot fail: an http URL always has a path.
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop_if_empty().extend(path);
        }
        url
    }

    /// The URL of a file of a repository at a commit, branch or tag.
    pub(super) fn file_url(&self, kind: Kind, name: &str, revision: &str, path: &str) -> Url {
        let parts = kind.folder().into_iter().chain(name.split('/'));
        let parts = parts.chain(["resolve", revision]);
        self.url(parts.chain(path.split('/')))
    }

    /// A download service that keeps partial downloads in `cache`.
    pub(super) fn service(&self, cache: &Path) -> Result<Service, HubError> {
        let web = HttpClient::new(cache);
        let pace = web.throttle("hub", Duration::ZERO, MAX_DOWNLOADS);
        let endpoint = self.endpoint.as_str();
        let service = Service::new(&web, endpoint, self.auth.clone(), pace, HELP);
        let wrong = |failure: Failure| {
            HubError::new(
                "setting up the Hub client",
                HubErrorKind::Local,
                failure.detail,
            )
        };
        Ok(service.map_err(wrong)?.with_timeout(DOWNLOAD_TIMEOUT))
    }

    pub(super) fn get(&self, url: Url) -> RequestBuilder {
        self.auth.apply(self.client.get(url))
    }

    pub(super) fn post(&self, url: Url) -> RequestBuilder {
        self.auth.apply(self.client.post(url))
    }

    /// A request with a large body. Only requests to the Hub itself carry the token: upload URLs for large files
    /// belong to other hosts and are presigned.
    pub(super) fn upload(&self, method: reqwest::Method, url: Url) -> RequestBuilder {
        let own = url.origin() == self.endpoint.origin();
        let request = self.upload_client.request(method, url);
        match own {
            true => self.auth.apply(request),
            false => request,
        }
    }

    /// Configures another program to use this Hub with our token; its telemetry is disabled.
    pub(super) fn configure(&self, mut program: Command) -> Command {
        program
            .env("HF_ENDPOINT", self.endpoint.as_str().trim_end_matches('/'))
            .env("HF_HUB_DISABLE_TELEMETRY", "1")
            .envs(self.auth.bearer().map(|token| ("HF_TOKEN", token)));
        program
    }

    /// Removes the token from a text.
    pub(super) fn redact(&self, text: &str) -> String {
        self.auth.redact(text)
    }

    /// Parses and checks a URL from a response of the Hub. An https endpoint must not return http URLs.
    pub(super) fn checked_url(&self, what: &str, href: &str) -> Result<Url, HubError> {
        let unexpected = |message: &str| {
            HubError::new(what, HubErrorKind::UnexpectedResponse, message.to_owned())
        };
        let url = Url::parse(href).map_err(|_| unexpected("an invalid URL"))?;
        match (url.scheme(), self.endpoint.scheme()) {
            ("https", _) | ("http", "http") => Ok(url),
            _ => Err(unexpected("a URL that is not https")),
        }
    }

    /// Sends a request with retries. `request` is called for every attempt.
    pub(super) async fn send(
        &self,
        what: &str,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<Response, HubError> {
        with_retries(|| self.send_once(what, request()), HubError::retry_delay).await
    }

    /// Sends a request once.
    pub(super) async fn send_once(
        &self,
        what: &str,
        request: RequestBuilder,
    ) -> Result<Response, HubError> {
        let sent = request.send().await;
        let response = sent.map_err(|error| {
            HubError::new(what, HubErrorKind::Unreachable, web::error_chain(&error))
        })?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(HubError::from_response(what, response, &self.auth).await),
        }
    }

    /// Sends a large body of `size` bytes once. `sent` counts the bytes handed out; the request fails when the
    /// count does not change for [`UPLOAD_TIMEOUT`].
    pub(super) async fn send_body(
        &self,
        what: &str,
        request: RequestBuilder,
        pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        size: u64,
        sent: &AtomicU64,
    ) -> Result<Response, HubError> {
        let request = request.header(CONTENT_LENGTH, size);
        let request = request.body(Body::wrap_stream(pieces));
        let stalled = async {
            let mut before = None;
            while before != Some(sent.load(Ordering::Relaxed)) {
                before = Some(sent.load(Ordering::Relaxed));
                tokio::time::sleep(UPLOAD_TIMEOUT).await;
            }
        };
        tokio::select! {
            response = self.send_once(what, request) => response,
            () = stalled => {
                let message = format!("the upload made no progress for {} s", UPLOAD_TIMEOUT.as_secs());
                Err(HubError::new(what, HubErrorKind::Unreachable, message))
            }
        }
    }

    /// Sends a request with retries and parses the response as JSON.
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        what: &str,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<T, HubError> {
        let response = self.send(what, request).await?;
        parse(what, response).await
    }
}

/// Parses a response of bounded size as JSON.
pub(super) async fn parse<T: DeserializeOwned>(
    what: &str,
    response: Response,
) -> Result<T, HubError> {
    let body = read(what, response, MAX_RESPONSE).await?;
    serde_json::from_slice(&body)
        .map_err(|error| HubError::new(what, HubErrorKind::UnexpectedResponse, error.to_string()))
}

/// Repeats `attempt` until it succeeds. `delay` gets the error and the number of attempts so far, and returns how
/// long to wait, or `None` if another attempt does not help.
pub(super) async fn with_retries<T, E, Attempt: Future<Output = Result<T, E>>>(
    attempt: impl Fn() -> Attempt,
    delay: impl Fn(&E, u32) -> Option<Duration>,
) -> Result<T, E> {
    let mut attempts = 0;
    loop {
        let error = match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        attempts += 1;
        match delay(&error, attempts) {
            Some(delay) if attempts < MAX_ATTEMPTS => tokio::time::sleep(delay).await,
            _ => return Err(error),
        }
    }
}
