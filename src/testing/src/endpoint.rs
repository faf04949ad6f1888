//! A loopback endpoint that speaks OpenAI's chat completions and embeddings, well or badly, and counts.

use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::post;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use serde_json::{Value, json};

/// What the endpoint does with a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A chat completion with this content; where a stream is asked for, in two pieces.
    Content(String),
    /// A chat completion that calls a tool; as a stream where one is asked for.
    ToolCall {
        /// Tells it from the other calls of the conversation.
        id: String,
        name: &'static str,
        arguments: Value,
    },
    /// A streamed chat completion of these pieces, with a pause before each.
    Pieces(Vec<String>, Duration),
    /// A status with a `Retry-After` header and a body.
    Status(u16, Option<String>, String),
    /// An embedding.
    Place(Vec<f64>),
    /// 200 with these bytes.
    Bytes(Vec<u8>),
    /// A content of that many bytes.
    Huge(usize),
    /// Never answers.
    Hang,
    /// Promises more than it sends, then closes.
    CloseMidway,
}

type Handler = dyn Fn(Value) -> BoxFuture<'static, Answer> + Send + Sync;

struct Shared {
    handler: Box<Handler>,
    calls: Mutex<HashMap<String, u32>>,
    delay: Mutex<Duration>,
    keys: Mutex<Vec<Option<String>>>,
}

/// A running endpoint; its task ends with the runtime.
pub struct Endpoint {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Endpoint {
    /// Starts on a free port of the loopback interface.
    pub async fn start<F>(handler: impl Fn(Value) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let shared = Arc::new(Shared {
            handler: Box::new(move |request| Box::pin(handler(request))),
            calls: Mutex::default(),
            delay: Mutex::default(),
            keys: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/v1/chat/completions", post(complete))
            .route("/v1/embeddings", post(complete))
            .with_state(shared.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, shared }
    }

    /// Always the same answer.
    pub async fn always(answer: Answer) -> Self {
        Self::start(move |_| std::future::ready(answer.clone())).await
    }

    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Time before each answer.
    pub fn delay(&self) -> Duration {
        *self.shared.delay.lock().unwrap()
    }

    /// Waits before each answer from now on.
    pub fn answer_after(&self, delay: Duration) {
        *self.shared.delay.lock().unwrap() = delay;
    }

    /// Requests received, by body.
    pub fn calls(&self) -> HashMap<String, u32> {
        self.shared.calls.lock().unwrap().clone()
    }

    /// Starts counting again.
    pub fn forget(&self) {
        self.shared.calls.lock().unwrap().clear();
    }

    pub fn call_count(&self) -> u32 {
        self.calls().values().sum()
    }

    /// The `Authorization` header of each request.
    pub fn keys(&self) -> Vec<Option<String>> {
        self.shared.keys.lock().unwrap().clone()
    }
}

async fn complete(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let text = String::from_utf8(body.to_vec()).unwrap();
    let request: Value = serde_json::from_str(&text).unwrap();
    let streamed = request["stream"] == true;
    *shared.calls.lock().unwrap().entry(text).or_default() += 1;
    let key = headers.get("authorization");
    let key = key.map(|value| value.to_str().unwrap().to_owned());
    shared.keys.lock().unwrap().push(key);
    let delay = *shared.delay.lock().unwrap();
    tokio::time::sleep(delay).await;
    match (shared.handler)(request).await {
        Answer::Content(content) if streamed => events(halves(&content), Duration::ZERO),
        Answer::ToolCall {
            id,
            name,
            arguments,
        } if streamed => {
            let call = tool_call(&id, name, &arguments);
            deltas(vec![call], "tool_calls", Duration::ZERO)
        }
        answer => respond(answer).await,
    }
}

/// A chat completion; usage counts characters, so that it is known beforehand.
pub fn completion(content: &str) -> Value {
    completed(&json!({"role": "assistant", "content": content}), "stop")
}

fn completed(message: &Value, finish_reason: &str) -> Value {
    json!({
        "id": "x", "object": "chat.completion", "created": 0, "model": "m",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": message}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110},
    })
}

/// A message that calls a tool, whole and as the piece of a stream.
fn tool_call(id: &str, name: &str, arguments: &Value) -> Value {
    let function = json!({"name": name, "arguments": arguments.to_string()});
    json!({
        "role": "assistant", "content": null,
        "tool_calls": [{"index": 0, "id": id, "type": "function", "function": function}],
    })
}

/// A text in two pieces.
fn halves(text: &str) -> Vec<String> {
    let middle = text.char_indices().nth(text.chars().count() / 2);
    let (one, other) = text.split_at(middle.map_or(text.len(), |(at, _)| at));
    vec![one.to_owned(), other.to_owned()]
}

/// A streamed chat completion with these pieces of its content.
fn events(pieces: Vec<String>, pause: Duration) -> Response<Body> {
    let pieces = pieces.into_iter().map(|piece| json!({"content": piece}));
    deltas(pieces.collect(), "stop", pause)
}

/// A streamed chat completion of these changes to its message.
fn deltas(deltas: Vec<Value>, finish_reason: &str, pause: Duration) -> Response<Body> {
    let chunk = |delta: Value, end: Value| {
        json!({
            "id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m",
            "choices": [{"index": 0, "delta": delta, "finish_reason": end}],
        })
    };
    let mut frames: Vec<String> = deltas
        .into_iter()
        .map(|delta| chunk(delta, Value::Null).to_string())
        .collect();
    frames.push(chunk(json!({}), json!(finish_reason)).to_string());
    let counted = json!({"choices": [], "usage": completion("")["usage"]});
    frames.extend([counted.to_string(), "[DONE]".to_owned()]);
    let frames = futures::stream::iter(frames).then(move |frame| async move {
        tokio::time::sleep(pause).await;
        Ok::<_, std::io::Error>(Bytes::from(format!("data: {frame}\n\n")))
    });
    let mut response = Response::new(Body::from_stream(frames));
    let media_type = "text/event-stream".parse().unwrap();
    response.headers_mut().insert("content-type", media_type);
    response
}

/// Where a text stands; it is of seven tokens.
fn place(numbers: &[f64]) -> Value {
    json!({
        "object": "list", "model": "e",
        "data": [{"object": "embedding", "index": 0, "embedding": numbers}],
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    })
}

async fn respond(answer: Answer) -> Response<Body> {
    let ok = |body: Body| Response::new(body);
    match answer {
        Answer::Content(content) => ok(completion(&content).to_string().into()),
        Answer::ToolCall {
            id,
            name,
            arguments,
        } => {
            let message = tool_call(&id, name, &arguments);
            ok(completed(&message, "tool_calls").to_string().into())
        }
        Answer::Pieces(pieces, pause) => events(pieces, pause),
        Answer::Place(numbers) => ok(place(&numbers).to_string().into()),
        Answer::Bytes(bytes) => ok(bytes.into()),
        Answer::Huge(size) => ok(completion(&"x".repeat(size)).to_string().into()),
        Answer::Hang => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            ok(Body::empty())
        }
        Answer::CloseMidway => {
            let half = Ok(Bytes::from_static(b"{\"choices\": [{\"mess"));
            let parts = [half, Err(std::io::Error::other("closed"))];
            ok(Body::from_stream(futures::stream::iter(parts)))
        }
        Answer::Status(status, retry_after, body) => {
            let mut response = Response::new(Body::from(body));
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            if let Some(value) = retry_after {
                let value = value.parse().unwrap();
                response.headers_mut().insert("retry-after", value);
            }
            response
        }
    }
}
