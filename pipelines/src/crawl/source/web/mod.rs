//! What sources ask of the network: bounded, paced, resumed, asked again only for what has changed, and
//! with credentials that are shown to nobody but their service.

mod download;
pub(crate) mod headers;
mod kept;
mod pace;
mod secrets;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pybench::run::{Failure, FailureKind};
use reqwest::{Client, ClientBuilder, StatusCode, Url};
use serde::de::DeserializeOwned;

use super::super::name::printable;
use super::Limits;
pub(super) use download::Got;
use download::{Ask, Bound, fetch};
pub(super) use pace::Pace;
pub(crate) use secrets::{Auth, Surroundings};

/// Longest listing that is read, bytes.
const LISTING: u64 = 16 << 20;

/// What all sources of a run share.
pub struct Web {
    /// Made when it is first needed: without a network there may be no certificates either.
    client: OnceLock<Client>,
    cache: PathBuf,
    /// By the service's name.
    paces: Mutex<BTreeMap<&'static str, Arc<Pace>>>,
    surroundings: Surroundings,
    /// No service is asked more slowly; tests have no time.
    slowest: Duration,
}

impl Web {
    /// With downloads kept below `cache`, and with the credentials of this process's environment.
    pub fn new(cache: &Path) -> Arc<Self> {
        Self::within(cache, Surroundings::of_this_process(), Duration::MAX)
    }

    pub(super) fn within(cache: &Path, surroundings: Surroundings, slowest: Duration) -> Arc<Self> {
        Arc::new(Self {
            client: OnceLock::new(),
            cache: cache.to_owned(),
            paces: Mutex::default(),
            surroundings,
            slowest,
        })
    }

    fn client(&self) -> reqwest::Result<&Client> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = client()
            .read_timeout(Duration::from_secs(30))
            .timeout(Duration::from_secs(900))
            .build()?;
        Ok(self.client.get_or_init(|| client))
    }

    pub(super) fn surroundings(&self) -> &Surroundings {
        &self.surroundings
    }

    /// The pace of a service, the same for all that ask it.
    pub(super) fn pace(
        &self,
        name: &'static str,
        interval: Duration,
        connections: usize,
    ) -> Arc<Pace> {
        let mut paces = self.paces.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Pace::new(interval.min(self.slowest), connections));
        paces.entry(name).or_insert_with(new).clone()
    }

    /// Download a URL of a recipe.
    pub(super) async fn get(&self, url: &str, limits: Limits) -> Result<Got, Trouble> {
        let url = Url::parse(url).map_err(|e| Trouble::Refused(format!("not a URL: {e}")))?;
        fetch(
            self,
            Ask {
                url,
                auth: &Auth::None,
                help: "",
                pace: None,
                bound: Bound::File(limits),
                expected: &Expected::default(),
            },
        )
        .await
    }
}

/// What every client of ours has in common; how long it waits for an answer is its own affair.
pub(crate) fn client() -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("pybench/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(Duration::from_secs(10))
        .redirect(reqwest::redirect::Policy::custom(redirect))
}

/// At most five, and never from a channel that is encrypted to one that is not. Credentials do not go to
/// another host: reqwest sees to that.
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

/// Why there is no answer of use.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Not to be had: 404, too large, no URL at all.
    Refused(String),
    /// No connection, 5xx, 429: another attempt may succeed.
    Failed(Failure),
}

impl Trouble {
    /// Where it keeps the whole item away.
    pub(super) fn of_item(self, item: &str) -> Failure {
        match self {
            Self::Refused(reason) => Failure::new(FailureKind::Item, format!("{item}: {reason}")),
            Self::Failed(failure) => failure,
        }
    }
}

/// What a listing says of a file, against which the download is checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Expected {
    pub(super) size: Option<u64>,
    pub(super) sha256: Option<String>,
}

/// A service on the network.
#[derive(Clone)]
pub(super) struct Service {
    web: Arc<Web>,
    base: Url,
    auth: Auth,
    pace: Arc<Pace>,
    /// What to do where it says 401 or 403.
    help: &'static str,
}

impl Service {
    /// At `base`, a URL.
    ///
    /// # Errors
    /// Where the base is no URL of http or https.
    pub(super) fn new(
        web: &Arc<Web>,
        base: &str,
        auth: Auth,
        pace: Arc<Pace>,
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
            pace,
            help,
        })
    }

    /// The URL below the base with these parts of a path, each of them any text, and this query.
    pub(super) fn url<'a>(
        &self,
        path: impl IntoIterator<Item = &'a str>,
        query: &[(&str, &str)],
    ) -> Url {
        let mut url = self.base.clone();
        // A URL of http always has a path.
        if let Ok(mut parts) = url.path_segments_mut() {
            parts.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    fn ask<'a>(&'a self, url: Url, bound: Bound, expected: &'a Expected) -> Ask<'a> {
        Ask {
            url,
            auth: &self.auth,
            help: self.help,
            pace: Some(&self.pace),
            bound,
            expected,
        }
    }

    /// A listing, and the page after it.
    pub(super) async fn text(&self, url: Url) -> Result<(String, Option<Url>), Trouble> {
        let (shown, expected) = (display_url(&url), Expected::default());
        let mut got = fetch(&self.web, self.ask(url, Bound::Listing, &expected)).await?;
        let next = got.next.as_deref().and_then(|next| Url::parse(next).ok());
        Ok((read(&mut got.file, &shown)?, next))
    }

    /// A listing in JSON, and the page after it.
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        url: Url,
    ) -> Result<(T, Option<Url>), Trouble> {
        let shown = display_url(&url);
        let (text, next) = self.text(url).await?;
        let parsed = serde_json::from_str(&text);
        Ok((parsed.map_err(|error| unexpected(&shown, &error))?, next))
    }

    /// A file.
    pub(super) async fn download(
        &self,
        url: Url,
        expected: &Expected,
        limits: Limits,
    ) -> Result<Got, Trouble> {
        fetch(&self.web, self.ask(url, Bound::File(limits), expected)).await
    }
}

fn read(file: &mut File, shown: &str) -> Result<String, Trouble> {
    let mut bytes = Vec::new();
    let read = file.take(LISTING).read_to_end(&mut bytes);
    read.map_err(|error| unexpected(shown, &error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// An answer of another form than it should have: of a page to sign in, or of a new version.
pub(super) fn unexpected(shown: &str, error: &dyn std::fmt::Display) -> Trouble {
    let text = format!("{shown}: the answer is not of the expected form: {error}");
    Trouble::Failed(Failure::new(FailureKind::Internal, printable(&text)).retryable())
}

/// A URL without what may be a secret: user, password, query, fragment.
pub(crate) fn display_url(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for URLs that have no host, which have no user either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    printable(url.as_str())
}

/// An error with its causes: reqwest's own text leaves out what matters. Never the URL.
pub(crate) fn chain(error: &reqwest::Error) -> String {
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

/// What a refusal says.
fn refusal(status: StatusCode, help: &str) -> String {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if !help.is_empty() => {
            format!("the server answered {status}: {help}")
        }
        _ => format!("the server answered {status}"),
    }
}

#[cfg(test)]
mod tests;
