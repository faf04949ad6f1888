//! A loopback endpoint that speaks OpenAI's Files and Batch APIs, well or badly, and counts.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Multipart, Path, Query, State};
use axum::http::{Response, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::endpoint::{Answer, completion};

/// Where a client can be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    Upload,
    Make,
    List,
    Look,
    Content,
}

/// What is done with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// As it should be.
    Serve,
    /// Nothing is done, and nothing ever answered.
    HangBefore,
    /// It is done, and the answer never comes.
    HangAfter,
    /// It is done, and the connection breaks in the middle of the answer.
    BreakAfter,
    /// A status in place of it.
    Status(u16),
}

/// What came of a batch, before it is handed out.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Which batch, from 1.
    pub number: usize,
    pub status: String,
    /// Lines by request, in the order of the file.
    pub output: Vec<String>,
    pub error: Vec<String>,
    pub errors: Value,
}

type Handler = dyn Fn(Value) -> BoxFuture<'static, Answer> + Send + Sync;
type Script = dyn Fn(Point, usize) -> Act + Send + Sync;
type Twist = dyn Fn(&mut Outcome) + Send + Sync;

/// Looks before a batch has ended.
const LOOKS: usize = 2;

struct Batch {
    id: String,
    file: String,
    metadata: Value,
    requests: usize,
    looks: usize,
    outcome: Outcome,
}

#[derive(Default)]
struct Kept {
    files: HashMap<String, Vec<u8>>,
    batches: Vec<Batch>,
    met: Vec<Point>,
    /// Bodies that were answered in batches → how often.
    asked: BTreeMap<String, u32>,
}

struct Shared {
    handler: Box<Handler>,
    script: Mutex<Box<Script>>,
    twist: Mutex<Box<Twist>>,
    kept: Mutex<Kept>,
    hung: Notify,
}

/// A running endpoint; its task ends with the runtime.
pub struct BatchServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl BatchServer {
    /// Starts on a free port; requests of batches are answered by the handler.
    pub async fn start<F>(handler: impl Fn(Value) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let shared = Arc::new(Shared {
            handler: Box::new(move |request| Box::pin(handler(request))),
            script: Mutex::new(Box::new(|_, _| Act::Serve)),
            twist: Mutex::new(Box::new(|_| {})),
            kept: Mutex::default(),
            hung: Notify::new(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/v1/files", post(upload))
            .route("/v1/files/{id}/content", get(content))
            .route("/v1/batches", post(make).get(list))
            .route("/v1/batches/{id}", get(look))
            .layer(DefaultBodyLimit::disable())
            .with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, shared }
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// What is done at the nth time (from 1) that a client comes to a point.
    pub fn script(&self, script: impl Fn(Point, usize) -> Act + Send + Sync + 'static) {
        *self.shared.script.lock().unwrap() = Box::new(script);
        self.shared.kept.lock().unwrap().met.clear();
    }

    /// What becomes of batches.
    pub fn twist(&self, twist: impl Fn(&mut Outcome) + Send + Sync + 'static) {
        *self.shared.twist.lock().unwrap() = Box::new(twist);
    }

    /// Resolves when a client was made to hang.
    pub async fn hung(&self) {
        self.shared.hung.notified().await;
    }

    /// Everything is new.
    pub fn forget(&self) {
        *self.shared.kept.lock().unwrap() = Kept::default();
    }

    /// Requests that were done in batches → how often.
    pub fn asked(&self) -> BTreeMap<String, u32> {
        self.shared.kept.lock().unwrap().asked.clone()
    }

    /// The requests of each batch.
    pub fn batches(&self) -> Vec<usize> {
        let kept = self.shared.kept.lock().unwrap();
        kept.batches.iter().map(|batch| batch.requests).collect()
    }

    /// How often clients came to a point.
    pub fn times(&self, point: Point) -> usize {
        let kept = self.shared.kept.lock().unwrap();
        kept.met.iter().filter(|met| **met == point).count()
    }
}

impl Shared {
    fn meet(&self, point: Point) -> Act {
        let times = {
            let mut kept = self.kept.lock().unwrap();
            kept.met.push(point);
            kept.met.iter().filter(|met| **met == point).count()
        };
        self.script.lock().unwrap()(point, times)
    }

    /// Meets the client: the answer, as it is given.
    async fn serve<F: Future<Output = Response<Body>>>(
        &self,
        point: Point,
        answer: impl FnOnce() -> F,
    ) -> Response<Body> {
        match self.meet(point) {
            Act::Serve => answer().await,
            Act::HangBefore => self.hang().await,
            Act::HangAfter => {
                answer().await;
                self.hang().await
            }
            Act::BreakAfter => {
                let body = axum::body::to_bytes(answer().await.into_body(), usize::MAX).await;
                let body = body.unwrap();
                let half = body.slice(..body.len() * 2 / 3);
                let parts = [Ok(half), Err(std::io::Error::other("closed"))];
                Response::new(Body::from_stream(futures::stream::iter(parts)))
            }
            Act::Status(status) => {
                let mut response = Response::new(Body::from("{}"));
                *response.status_mut() = StatusCode::from_u16(status).unwrap();
                response
            }
        }
    }

    async fn hang(&self) -> Response<Body> {
        self.hung.notify_one();
        std::future::pending().await
    }

    /// Does the requests of a file.
    async fn work(&self, file: &[u8]) -> Outcome {
        let mut outcome = Outcome {
            number: self.kept.lock().unwrap().batches.len() + 1,
            status: "completed".to_owned(),
            ..Outcome::default()
        };
        let mut ids = std::collections::HashSet::new();
        for line in std::str::from_utf8(file).unwrap().lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(
                (&line["method"], &line["url"]),
                (&json!("POST"), &json!("/v1/chat/completions"))
            );
            let id = line["custom_id"].as_str().unwrap().to_owned();
            assert!(id.len() <= 64 && ids.insert(id.clone()), "{id}");
            let body = line["body"].clone();
            *self
                .kept
                .lock()
                .unwrap()
                .asked
                .entry(body.to_string())
                .or_default() += 1;
            let line = |status: u16, body: Value| {
                let response = json!({"status_code": status, "request_id": "r", "body": body});
                json!({"id": "x", "custom_id": id, "response": response, "error": null}).to_string()
            };
            match (self.handler)(body).await {
                Answer::Content(content) => outcome.output.push(line(200, completion(&content))),
                Answer::Status(status, _, text) => {
                    let error = json!({"error": {"message": text}});
                    outcome.error.push(line(status, error));
                }
                other => panic!("{other:?} is nothing for a batch"),
            }
        }
        outcome
    }
}

fn answer(value: &Value) -> Response<Body> {
    Response::new(Body::from(value.to_string()))
}

async fn upload(State(shared): State<Arc<Shared>>, mut form: Multipart) -> Response<Body> {
    let mut fields = HashMap::new();
    while let Some(field) = form.next_field().await.unwrap() {
        let name = field.name().unwrap().to_owned();
        let file = field.file_name().map(str::to_owned);
        fields.insert(name, (file, field.bytes().await.unwrap()));
    }
    assert_eq!(fields["purpose"].1, Bytes::from_static(b"batch"));
    let (name, bytes) = &fields["file"];
    assert!(name.as_ref().unwrap().ends_with(".jsonl"));
    let done = || async {
        let mut kept = shared.kept.lock().unwrap();
        let id = format!("file-{}", kept.files.len() + 1);
        kept.files.insert(id.clone(), bytes.to_vec());
        answer(&json!({"id": id, "object": "file", "purpose": "batch"}))
    };
    shared.serve(Point::Upload, done).await
}

async fn make(State(shared): State<Arc<Shared>>, Json(asked): Json<Value>) -> Response<Body> {
    assert_eq!(asked["endpoint"], "/v1/chat/completions");
    assert_eq!(asked["completion_window"], "24h");
    let done = || async {
        let file = asked["input_file_id"].as_str().unwrap().to_owned();
        let bytes = shared.kept.lock().unwrap().files[&file].clone();
        let mut outcome = shared.work(&bytes).await;
        let requests = outcome.output.len() + outcome.error.len();
        shared.twist.lock().unwrap()(&mut outcome);
        let mut kept = shared.kept.lock().unwrap();
        let id = format!("batch_{}", outcome.number);
        kept.files
            .insert(format!("out-{id}"), outcome.output.join("\n").into());
        kept.files
            .insert(format!("err-{id}"), outcome.error.join("\n").into());
        let batch = Batch {
            id,
            file,
            metadata: asked["metadata"].clone(),
            requests,
            looks: 0,
            outcome,
        };
        let seen = answer(&show(&batch));
        kept.batches.push(batch);
        seen
    };
    shared.serve(Point::Make, done).await
}

fn show(batch: &Batch) -> Value {
    let (ended, outcome) = (batch.looks > LOOKS, &batch.outcome);
    let file = |kind: &str, lines: &[String]| {
        (ended && !lines.is_empty()).then(|| format!("{kind}-{}", batch.id))
    };
    let done = if ended { outcome.output.len() } else { 0 };
    json!({
        "id": batch.id, "object": "batch", "endpoint": "/v1/chat/completions",
        "input_file_id": batch.file, "metadata": batch.metadata, "completion_window": "24h",
        "status": if ended { &*outcome.status } else { "in_progress" },
        "output_file_id": file("out", &outcome.output), "error_file_id": file("err", &outcome.error),
        "errors": if ended { outcome.errors.clone() } else { Value::Null },
        "request_counts": {"total": batch.requests, "completed": done, "failed": 0},
    })
}

async fn list(
    State(shared): State<Arc<Shared>>,
    Query(asked): Query<HashMap<String, String>>,
) -> Response<Body> {
    let done = || async {
        let kept = shared.kept.lock().unwrap();
        let newest: Vec<&Batch> = kept.batches.iter().rev().collect();
        let after = asked.get("after");
        let begin = after.map_or(0, |id| newest.iter().position(|b| b.id == *id).unwrap() + 1);
        // Pages of one, so that there are some.
        let page: Vec<_> = newest[begin..]
            .iter()
            .take(1)
            .map(|batch| show(batch))
            .collect();
        answer(&json!({"object": "list", "data": page, "has_more": begin + 1 < newest.len()}))
    };
    shared.serve(Point::List, done).await
}

async fn look(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response<Body> {
    let done = || async {
        let mut kept = shared.kept.lock().unwrap();
        let batch = kept
            .batches
            .iter_mut()
            .find(|batch| batch.id == id)
            .unwrap();
        batch.looks += 1;
        answer(&show(batch))
    };
    shared.serve(Point::Look, done).await
}

async fn content(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response<Body> {
    let done = || async {
        let kept = shared.kept.lock().unwrap();
        Response::new(Body::from(kept.files[&id].clone()))
    };
    shared.serve(Point::Content, done).await
}
