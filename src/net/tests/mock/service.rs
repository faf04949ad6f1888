//! A mock service on the loopback interface with recorded responses. Unit tests of several crates include this
//! file.

#![allow(dead_code, unreachable_pub)] // each includer uses a part of it

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

use pybench_net::{Credentials, HttpClient, Limits};

/// The response to a path.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
    etag: Option<String>,
    /// Lengths after which the first responses are cut off.
    cuts: Vec<usize>,
}

impl Answer {
    pub fn status(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    pub fn code(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub fn bytes(body: impl Into<Vec<u8>>) -> Self {
        Self {
            body: body.into().into(),
            ..Self::status(200)
        }
    }

    pub fn text(body: &str) -> Self {
        Self::bytes(body)
    }

    pub fn json(body: &str) -> Self {
        Self::text(body).with("content-type", "application/json")
    }

    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an ETag, and supports conditional and range requests.
    pub fn marked(mut self, etag: &str) -> Self {
        self.etag = Some(etag.to_owned());
        self
    }

    /// Cuts off the next response after `after` bytes and closes the connection.
    pub fn cut(mut self, after: usize) -> Self {
        self.cuts.push(after);
        self
    }
}

/// A received request.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Path with query.
    pub path: String,
    pub at: Instant,
    headers: HeaderMap,
}

impl Asked {
    pub fn header(&self, name: &str) -> &str {
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

/// The mock service.
pub struct Mock {
    base: String,
    shared: Arc<Shared>,
    cache: tempfile::TempDir,
}

impl Mock {
    pub async fn start() -> Self {
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

    /// The URL of a path.
    pub fn at(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    /// Sets the response to a path, for all queries.
    pub fn on(&self, path: &str, answer: Answer) {
        let mut answers = self.shared.answers.lock().unwrap();
        answers.insert(path.to_owned(), answer);
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.shared.log.lock().unwrap().clone()
    }

    /// Maximum number of concurrent requests so far.
    pub fn busiest(&self) -> usize {
        self.shared.busiest.load(Ordering::SeqCst)
    }

    /// A client with only these variables, no throttling, and a shared cache.
    pub fn web(&self, variables: &[(&str, &str)]) -> Arc<HttpClient> {
        self.web_at(variables, Duration::from_millis(1))
    }

    /// As [`Mock::web`], with throttle intervals of at most `slowest`.
    pub fn web_at(&self, variables: &[(&str, &str)], slowest: Duration) -> Arc<HttpClient> {
        HttpClient::with_credentials(self.cache.path(), Credentials::of(variables), slowest)
    }
}

pub const LIMITS: Limits = Limits {
    file: 1 << 20,
    total: 4 << 20,
};

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
