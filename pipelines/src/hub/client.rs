//! The Hub as this process may use it: where it is, who we are to it, and requests that are tried again.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use pybench::run::Failure;
use reqwest::header::CONTENT_LENGTH;
use reqwest::{Body, Client, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;
use tokio::process::Command;

use super::Kind;
use super::refusal::{Refusal, Why};
use crate::crawl::source::web::{self, Auth, Service, Surroundings, Web};

/// The Hub, unless `HF_ENDPOINT` names another.
const ENDPOINT: &str = "https://huggingface.co";
/// Without a byte of an answer.
const SILENCE: Duration = Duration::from_secs(60);
/// Without a byte going out; also how long the Hub may think about all of them.
const STALL: Duration = Duration::from_secs(300);
/// How often a request is made that may succeed later.
const TRIES: u32 = 4;
/// Before the second try; then twice as long each.
const REST: Duration = Duration::from_millis(400);
/// Longest rest that the Hub is given; where it asks for more, the user is told.
const LONGEST_REST: Duration = Duration::from_secs(60);
/// Longest answer that is read, bytes.
const ANSWER: usize = 64 << 20;
/// For one download: a large model over a slow line.
const PATIENCE: Duration = Duration::from_secs(6 * 3600);
/// Downloads at once.
pub(super) const AT_ONCE: usize = 4;
/// What to do where a download is refused.
const HELP: &str = "no such repository, or one that is private or gated: accept its terms on its page, and \
                    set HF_TOKEN to a token that may read it";

/// The Hub, and who we are to it.
#[derive(Clone, Debug)]
pub struct Hub {
    client: Client,
    /// Waits as long as bytes go out.
    sender: Client,
    endpoint: Url,
    auth: Auth,
}

impl Hub {
    /// As the environment has it: `HF_ENDPOINT`, `HF_TOKEN`, and the file that the Hub's tools keep the
    /// token in.
    ///
    /// # Errors
    /// Where one of them can be none.
    pub fn of_this_process() -> Result<Self, Refusal> {
        Self::within(&Surroundings::of_this_process())
    }

    pub(crate) fn within(surroundings: &Surroundings) -> Result<Self, Refusal> {
        let named = surroundings.variable("HF_ENDPOINT");
        let endpoint = named.as_deref().unwrap_or(ENDPOINT);
        let wrong = |said: String| Refusal::new("looking for the Hub", Why::Setting, said);
        let url = Url::parse(endpoint).map_err(|e| wrong(format!("HF_ENDPOINT: {e}")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("HF_ENDPOINT: neither http nor https".into()));
        }
        let auth = surroundings
            .hub()
            .map_err(|failure| wrong(failure.detail))?;
        let made = |client: reqwest::Result<Client>| client.map_err(|e| wrong(web::chain(&e)));
        Ok(Self {
            client: made(web::client().read_timeout(SILENCE).build())?,
            sender: made(web::client().build())?,
            endpoint: url,
            auth,
        })
    }

    /// Whether there is a token.
    pub fn knows_us(&self) -> bool {
        self.auth.is_some()
    }

    /// Where it is.
    pub fn endpoint(&self) -> &Url {
        &self.endpoint
    }

    /// The URL with these parts of a path, each of them any text.
    pub(super) fn url<'a>(&self, path: impl IntoIterator<Item = &'a str>) -> Url {
        let mut url = self.endpoint.clone();
        // A URL of http always has a path.
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop_if_empty().extend(path);
        }
        url
    }

    /// Where a file of a repository is, at a commit, branch or tag.
    pub(super) fn file(&self, kind: Kind, name: &str, revision: &str, path: &str) -> Url {
        let parts = kind.folder().into_iter().chain(name.split('/'));
        let parts = parts.chain(["resolve", revision]);
        self.url(parts.chain(path.split('/')))
    }

    /// To download from, with what is not whole yet kept in that cache.
    pub(super) fn service(&self, cache: &Path) -> Result<Service, Refusal> {
        let web = Web::new(cache);
        let pace = web.pace("hub", Duration::ZERO, AT_ONCE);
        let endpoint = self.endpoint.as_str();
        let service = Service::new(&web, endpoint, self.auth.clone(), pace, HELP);
        let wrong = |failure: Failure| Refusal::new("the Hub", Why::Setting, failure.detail);
        Ok(service.map_err(wrong)?.patient(PATIENCE))
    }

    pub(super) fn get(&self, url: Url) -> RequestBuilder {
        self.auth.sign(self.client.get(url))
    }

    pub(super) fn post(&self, url: Url) -> RequestBuilder {
        self.auth.sign(self.client.post(url))
    }

    /// A request with a long body. Nobody else than the Hub learns who we are: places to put large
    /// files at are others' machines, and their addresses are signed.
    pub(super) fn send(&self, method: reqwest::Method, url: Url) -> RequestBuilder {
        let own = url.origin() == self.endpoint.origin();
        let request = self.sender.request(method, url);
        match own {
            true => self.auth.sign(request),
            false => request,
        }
    }

    /// Another program that is to speak to this Hub for us. What it tells others of its use stays off.
    pub(super) fn tell(&self, mut program: Command) -> Command {
        program
            .env("HF_ENDPOINT", self.endpoint.as_str().trim_end_matches('/'))
            .env("HF_HUB_DISABLE_TELEMETRY", "1")
            .envs(self.auth.bearer().map(|token| ("HF_TOKEN", token)));
        program
    }

    /// A text of others without what it may have of our token.
    pub(super) fn hide(&self, text: &str) -> String {
        self.auth.hide(text)
    }

    /// An address that the Hub has answered with.
    pub(super) fn place(&self, what: &str, href: &str) -> Result<Url, Refusal> {
        let strange = |said: &str| Refusal::new(what, Why::Form, said.to_owned());
        let url = Url::parse(href).map_err(|_| strange("an address that is none"))?;
        match (url.scheme(), self.endpoint.scheme()) {
            ("https", _) | ("http", "http") => Ok(url),
            _ => Err(strange("an address that is not encrypted")),
        }
    }

    /// Ask, and again where that may help. `request` is made anew for every try.
    pub(super) async fn ask(
        &self,
        what: &str,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<Response, Refusal> {
        persistently(|| self.once(what, request()), Refusal::rest).await
    }

    /// Ask once.
    pub(super) async fn once(
        &self,
        what: &str,
        request: RequestBuilder,
    ) -> Result<Response, Refusal> {
        let sent = request.send().await;
        let response =
            sent.map_err(|error| Refusal::new(what, Why::Unreachable, web::chain(&error)))?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(Refusal::of(what, response, &self.auth).await),
        }
    }

    /// Send a long body of `size` bytes, once. It may take as long as bytes go `out`.
    pub(super) async fn deliver(
        &self,
        what: &str,
        request: RequestBuilder,
        pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
        size: u64,
        out: &AtomicU64,
    ) -> Result<Response, Refusal> {
        let request = request.header(CONTENT_LENGTH, size);
        let request = request.body(Body::wrap_stream(pieces));
        let stalled = async {
            let mut before = None;
            while before != Some(out.load(Ordering::Relaxed)) {
                before = Some(out.load(Ordering::Relaxed));
                tokio::time::sleep(STALL).await;
            }
        };
        tokio::select! {
            answer = self.once(what, request) => answer,
            () = stalled => {
                let said = format!("nothing went out for {} s", STALL.as_secs());
                Err(Refusal::new(what, Why::Unreachable, said))
            }
        }
    }

    /// Ask for JSON.
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        what: &str,
        request: impl Fn() -> RequestBuilder,
    ) -> Result<T, Refusal> {
        let response = self.ask(what, request).await?;
        parse(what, response).await
    }
}

/// The body as JSON, bounded.
pub(super) async fn parse<T: DeserializeOwned>(
    what: &str,
    response: Response,
) -> Result<T, Refusal> {
    let body = read(what, response, ANSWER).await?;
    serde_json::from_slice(&body).map_err(|error| Refusal::new(what, Why::Form, error.to_string()))
}

/// The body, of which at most that many bytes.
pub(super) async fn read(
    what: &str,
    mut response: Response,
    most: usize,
) -> Result<Vec<u8>, Refusal> {
    let mut body = Vec::new();
    loop {
        let chunk = response.chunk().await;
        match chunk.map_err(|e| Refusal::new(what, Why::Unreachable, web::chain(&e)))? {
            None => return Ok(body),
            Some(chunk) if body.len() + chunk.len() > most => {
                let said = format!("an answer of more than {most} bytes");
                return Err(Refusal::new(what, Why::Form, said));
            }
            Some(chunk) => body.extend_from_slice(&chunk),
        }
    }
}

/// Try, and again where that may help: `rest` says how long to wait after so many tries.
pub(super) async fn persistently<T, E, Trying: Future<Output = Result<T, E>>>(
    attempt: impl Fn() -> Trying,
    rest: impl Fn(&E, u32) -> Option<Duration>,
) -> Result<T, E> {
    let mut tries = 0;
    loop {
        let error = match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        tries += 1;
        match rest(&error, tries) {
            Some(rest) if tries < TRIES => tokio::time::sleep(rest).await,
            _ => return Err(error),
        }
    }
}

/// How long to rest after that many tries; the Hub's own word goes first.
pub(super) fn rest_after(tries: u32, asked: Option<Duration>) -> Option<Duration> {
    match asked {
        Some(asked) if asked > LONGEST_REST => None,
        Some(asked) => Some(asked),
        None => Some(REST * 2_u32.pow(tries.saturating_sub(1).min(6))),
    }
}
