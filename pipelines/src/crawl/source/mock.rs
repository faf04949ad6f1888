//! A service on the loopback with recorded answers, for the tests of sources.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use pybench::run::Failure;

use super::web::{Surroundings, Web};
use super::{Event, Limits, Outlet, Source};

/// An answer to a path.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
    etag: Option<String>,
    /// Of the first answers, so much of the body and no more.
    cuts: Vec<usize>,
}

impl Answer {
    pub(super) fn status(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    pub(super) fn code(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub(super) fn bytes(body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: body.into().into(),
            ..Self::status(200)
        }
    }

    pub(super) fn text(body: &str) -> Self {
        Self::bytes(body)
    }

    pub(super) fn json(body: &str) -> Self {
        Self::text(body).with("content-type", "application/json")
    }

    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Heed conditional requests and requests for the rest.
    pub(super) fn marked(mut self, etag: &str) -> Self {
        self.etag = Some(etag.to_owned());
        self
    }

    /// Of the next answer that has not been cut yet, say so much and hang up.
    pub(super) fn cut(mut self, after: usize) -> Self {
        self.cuts.push(after);
        self
    }
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// With its query.
    pub(super) path: String,
    pub(super) at: Instant,
    headers: HeaderMap,
}

impl Asked {
    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).map(|value| value.to_str().unwrap());
        value.unwrap_or_default()
    }
}

#[derive(Default)]
struct Shared {
    answers: Mutex<HashMap<String, Answer>>,
    log: Mutex<Vec<Asked>>,
    inside: AtomicUsize,
    busiest: AtomicUsize,
}

/// The service.
pub(super) struct Mock {
    base: String,
    shared: Arc<Shared>,
    cache: tempfile::TempDir,
}

impl Mock {
    pub(super) async fn start() -> Self {
        let shared = Arc::<Shared>::default();
        let router = Router::new().fallback(answer).with_state(shared.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            base,
            shared,
            cache: tempfile::tempdir().unwrap(),
        }
    }

    /// A URL of it.
    pub(super) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// What it answers to a path, whatever the query.
    pub(super) fn on(&self, path: &str, answer: Answer) {
        let mut answers = self.shared.answers.lock().unwrap();
        answers.insert(path.to_owned(), answer);
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.shared.log.lock().unwrap().clone()
    }

    /// Most requests that were under way at once.
    pub(super) fn busiest(&self) -> usize {
        self.shared.busiest.load(Ordering::SeqCst)
    }

    /// With these variables and no others, in a hurry, with one cache for all.
    pub(super) fn web(&self, variables: &[(&str, &str)]) -> Arc<Web> {
        self.web_at(variables, Duration::from_millis(1))
    }

    /// The same at a pace.
    pub(super) fn web_at(&self, variables: &[(&str, &str)], slowest: Duration) -> Arc<Web> {
        Web::within(self.cache.path(), Surroundings::of(variables), slowest)
    }

    pub(super) async fn collect(&self, source: &dyn Source) -> Result<Vec<String>, Failure> {
        collect(source).await
    }
}

pub(super) const LIMITS: Limits = Limits {
    file: 1 << 20,
    total: 4 << 20,
};

/// Everything of a source, a line each: `licence origin`, or `left origin: reason`.
pub(super) async fn collect(source: &dyn Source) -> Result<Vec<String>, Failure> {
    let mut lines = Vec::new();
    for item in source.items() {
        let (outlet, mut events) = Outlet::new(LIMITS);
        let (result, ()) = tokio::join!(source.collect(&item, outlet), async {
            while let Some(event) = events.recv().await {
                lines.push(match event {
                    Event::File {
                        origin, licence, ..
                    } => format!("{} {origin}", licence.as_deref().unwrap_or("-")),
                    Event::LeftOut { origin, reason } => format!("left {origin}: {reason}"),
                    Event::Licence(licence) => format!("licence {licence}"),
                });
            }
        });
        result?;
    }
    Ok(lines)
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let inside = shared.inside.fetch_add(1, Ordering::SeqCst) + 1;
    shared.busiest.fetch_max(inside, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(5)).await; // so that others would be seen
    let headers = request.headers().clone();
    shared.log.lock().unwrap().push(Asked {
        path: request.uri().to_string(),
        at: Instant::now(),
        headers: headers.clone(),
    });
    let (found, cut) = {
        let mut answers = shared.answers.lock().unwrap();
        let found = answers.get_mut(request.uri().path());
        match found {
            Some(answer) if !answer.cuts.is_empty() => {
                let cut = answer.cuts.remove(0);
                (answer.clone(), Some(cut))
            }
            Some(answer) => (answer.clone(), None),
            None => (Answer::status(404), None),
        }
    };
    shared.inside.fetch_sub(1, Ordering::SeqCst);
    respond(found, cut, &headers)
}

fn respond(answer: Answer, cut: Option<usize>, asked: &HeaderMap) -> Response {
    let asked = |name: &str| {
        asked
            .get(name)
            .map(|value| value.to_str().unwrap().to_owned())
    };
    let mut response = Response::builder();
    for (name, value) in &answer.headers {
        response = response.header(name, value);
    }
    let (mut status, mut body) = (StatusCode::from_u16(answer.status).unwrap(), answer.body);
    if let Some(etag) = &answer.etag {
        response = response.header("etag", etag);
        if asked("if-none-match").as_ref() == Some(etag) {
            status = StatusCode::NOT_MODIFIED;
            body = Bytes::new();
        } else if asked("if-range").as_ref() == Some(etag) {
            let range = asked("range").unwrap();
            let from = range.strip_prefix("bytes=").unwrap().trim_end_matches('-');
            let from: usize = from.parse().unwrap();
            if from >= body.len() {
                let refused = response.status(416).body(Body::empty());
                return refused.unwrap();
            }
            let (last, all) = (body.len() - 1, body.len());
            response = response.header("content-range", format!("bytes {from}-{last}/{all}"));
            status = StatusCode::PARTIAL_CONTENT;
            body = body.slice(from..);
        }
    }
    let body = match cut {
        None => Body::from(body),
        Some(after) => {
            response = response.header("content-length", body.len());
            let said = Ok(body.slice(..after));
            let gone = Err(std::io::Error::other("gone"));
            let late = async move {
                tokio::time::sleep(Duration::from_millis(50)).await; // what was said has arrived
                gone
            };
            let chunks = futures::stream::iter([said]);
            Body::from_stream(futures::StreamExt::chain(
                chunks,
                futures::stream::once(late),
            ))
        }
    };
    response.status(status).body(body).unwrap()
}
