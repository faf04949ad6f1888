//! The HTTP routes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use pybench_inference::Sampling;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::engine::{Engine, GenerationJob};
use super::error::ApiError;
use super::prompt::{ChatPrompt, PreparedPrompt, PromptError};
use super::reply::{Endpoint, PendingReply, seconds};
use super::request::{
    ChatRequest, CommonFields, CompletionRequest, GenerationParams, Prompt, parse,
};
use super::vocabulary::Vocabulary;

const MAX_BODY_BYTES: usize = 8 << 20;
/// Prompts of one completion request.
const MAX_PROMPTS: usize = 128;

/// State that the routes share.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) created: u64,
    pub(super) engine: Engine,
    pub(super) vocabulary: Arc<Vocabulary>,
    /// `None` for a base model.
    pub(super) chat: Option<ChatPrompt>,
    /// Tokens that end a reply.
    pub(super) stop_tokens: Arc<Vec<u32>>,
    /// Number of rows of the embedding.
    pub(super) vocab: i64,
    /// Maximum tokens of prompt and reply.
    pub(super) context: usize,
    /// The value that `Authorization: Bearer` must have.
    pub(super) key: Option<String>,
    pub(super) requests: AtomicU64,
}

type Shared = State<Arc<Server>>;
type Body = Result<Bytes, BytesRejection>;

/// All routes; every error has OpenAI's format.
pub(super) fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/v1/models", get(models))
        .route("/v1/models/{name}", get(model))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/health", get(health))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(server.clone(), check_key))
        .with_state(server)
}

async fn check_key(State(server): Shared, request: Request, next: Next) -> Response {
    let given = request.headers().get("authorization");
    let wanted = server.key.as_ref().map(|key| format!("Bearer {key}"));
    match wanted {
        Some(wanted)
            if !given.is_some_and(|g| constant_time_eq(g.as_bytes(), wanted.as_bytes())) =>
        {
            ApiError::unauthorized().into_response()
        }
        _ => next.run(request).await,
    }
}

/// Compares in constant time.
fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |all, (x, y)| all | (x ^ y)) == 0
}

async fn not_found(uri: Uri) -> ApiError {
    ApiError::no_route(
        StatusCode::NOT_FOUND,
        format!("{} does not exist", uri.path()),
    )
}

async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let text = format!("{} does not support {method}", uri.path());
    ApiError::no_route(StatusCode::METHOD_NOT_ALLOWED, text)
}

async fn health(State(server): Shared) -> Json<Value> {
    Json(json!({"status": "ok", "capacity": server.engine.capacity()}))
}

async fn models(State(server): Shared) -> Json<Value> {
    Json(json!({"object": "list", "data": [server.card()]}))
}

async fn model(State(server): Shared, Path(name): Path<String>) -> Result<Json<Value>, ApiError> {
    server.check_model(Some(&name))?;
    Ok(Json(server.card()))
}

async fn chat(State(server): Shared, body: Body) -> Result<Response, ApiError> {
    let request: ChatRequest = parse(&take(body)?)?;
    server.check_model(request.common.model.as_deref())?;
    let params = request.params()?;
    let (messages, tools) = (request.conversation()?, request.tools()?);
    let seed = server.seed(&request.common);
    let worker = server.clone();
    let prompt = off_thread(move || match &worker.chat {
        Some(chat) => chat.prepare(&messages, &tools).map_err(refused),
        None => Err(ApiError::bad(
            None,
            "this server has a base model without a chat template; use /v1/completions",
        )),
    });
    let prompts = vec![prompt.await?];
    respond(&server, Endpoint::Chat, prompts, params, seed).await
}

async fn completions(State(server): Shared, body: Body) -> Result<Response, ApiError> {
    let request: CompletionRequest = parse(&take(body)?)?;
    server.check_model(request.common.model.as_deref())?;
    let params = request.params()?;
    let seed = server.seed(&request.common);
    let worker = server.clone();
    let prompts = off_thread(move || worker.completion_prompts(request.prompt)).await?;
    let prompts = prompts.into_iter().map(PreparedPrompt::of_text).collect();
    respond(&server, Endpoint::Completion, prompts, params, seed).await
}

fn take(body: Body) -> Result<Bytes, ApiError> {
    body.map_err(|error| match error.status() {
        StatusCode::PAYLOAD_TOO_LARGE => {
            ApiError::too_large(format!("the body is larger than {MAX_BODY_BYTES} bytes"))
        }
        _ => ApiError::bad(None, error.body_text()),
    })
}

/// Tokenizes on a blocking thread, so that other requests are not delayed.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(ApiError::internal("the prompt could not be tokenized")))
}

fn refused(error: PromptError) -> ApiError {
    ApiError::bad(Some("messages"), error.to_string())
}

async fn respond(
    server: &Server,
    endpoint: Endpoint,
    prompts: Vec<PreparedPrompt>,
    params: GenerationParams,
    seed: u64,
) -> Result<Response, ApiError> {
    let stream = params.stream;
    let pending = server.submit(endpoint, prompts, params, seed)?;
    match stream {
        true => Ok(pending.stream()),
        false => Ok(Json(pending.whole().await?).into_response()),
    }
}

impl Server {
    fn card(&self) -> Value {
        json!({
            "id": self.name, "object": "model", "created": self.created, "owned_by": "pybench",
            "max_model_len": self.context,
        })
    }

    fn check_model(&self, asked: Option<&str>) -> Result<(), ApiError> {
        match asked {
            Some(asked) if asked != self.name => Err(ApiError::no_model(asked, &self.name)),
            _ => Ok(()),
        }
    }

    /// The seed of the request, or a random one.
    fn seed(&self, common: &CommonFields) -> u64 {
        let own = || rand::random::<u64>();
        common.seed.map_or_else(own, |seed| seed as u64)
    }

    fn completion_prompts(&self, prompt: Prompt) -> Result<Vec<Vec<i64>>, ApiError> {
        let encode = |text: String| {
            let ids = self.vocabulary.encode(&text, true);
            ids.map_err(|error| ApiError::bad(Some("prompt"), error))
        };
        let prompts = match prompt {
            Prompt::Text(text) => vec![encode(text)?],
            Prompt::Tokens(ids) => vec![ids],
            Prompt::Texts(texts) if texts.len() <= MAX_PROMPTS => {
                texts.into_iter().map(encode).collect::<Result<_, _>>()?
            }
            Prompt::ManyTokens(all) if all.len() <= MAX_PROMPTS => all,
            _ => {
                let text = format!("at most {MAX_PROMPTS} prompts");
                return Err(ApiError::bad(Some("prompt"), text));
            }
        };
        if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
            return Err(ApiError::bad(Some("prompt"), "a prompt has no tokens"));
        }
        Ok(prompts)
    }

    /// The maximum number of tokens of the reply to a prompt.
    fn max_tokens(&self, prompt: &[i64], wanted: Option<usize>) -> Result<usize, ApiError> {
        if let Some(id) = prompt.iter().find(|id| !(0..self.vocab).contains(*id)) {
            let text = format!(
                "token {id} is not in the vocabulary of {} tokens",
                self.vocab
            );
            return Err(ApiError::bad(Some("prompt"), text));
        }
        let left = self.context.saturating_sub(prompt.len());
        let needed = wanted.unwrap_or(1);
        if needed > left {
            return Err(ApiError::too_long(format!(
                "the context is {} tokens; the prompt has {} and the reply may have {needed}",
                self.context,
                prompt.len()
            )));
        }
        Ok(wanted.unwrap_or(left))
    }

    fn submit(
        &self,
        endpoint: Endpoint,
        prompts: Vec<PreparedPrompt>,
        params: GenerationParams,
        seed: u64,
    ) -> Result<PendingReply, ApiError> {
        let limits = prompts
            .iter()
            .map(|prompt| self.max_tokens(&prompt.ids, params.max_tokens));
        let limits = limits.collect::<Result<Vec<_>, _>>()?;
        let choices = prompts.len() * params.choices;
        let permits = self.engine.reserve(choices).ok_or_else(ApiError::busy)?;
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let (out, events) = mpsc::unbounded_channel();
        let prompt_tokens = prompts.iter().map(|prompt| prompt.ids.len()).sum();
        let repeat = |prompt: &PreparedPrompt| vec![prompt.reader.clone(); params.choices];
        let readers = prompts.iter().flat_map(repeat).collect();
        let required = |openings: &[&'static str]| {
            let required = params.required_text.clone();
            required.map(|required| required.or(openings.iter().copied()))
        };
        let shared = |prompt: PreparedPrompt| {
            let required = required(prompt.openings);
            (Arc::new(prompt.ids), Arc::new(prompt.shown), required)
        };
        let prompts: Vec<_> = prompts.into_iter().map(shared).collect();
        for (index, permit) in permits.into_iter().enumerate() {
            let prompt = index / params.choices;
            let job = GenerationJob {
                index,
                prompt_number: number * MAX_PROMPTS as u64 + prompt as u64,
                prompt: prompts[prompt].0.clone(),
                max_tokens: limits[prompt],
                sampling: Sampling {
                    temperature: params.temperature,
                    top_p: params.top_p,
                    seed: seed.wrapping_add(index as u64),
                },
                stops: params.stops.clone(),
                stop_tokens: self.stop_tokens.clone(),
                shown: prompts[prompt].1.clone(),
                top_logprobs: params.top_logprobs,
                repetition: params.repetition,
                required_text: prompts[prompt].2.clone(),
                trim_first: endpoint == Endpoint::Chat && self.vocabulary.marks_words,
                out: out.clone(),
                permit,
            };
            if !self.engine.submit(job) {
                return Err(ApiError::internal(
                    "the engine has stopped; restart the server",
                ));
            }
        }
        let prefix = match endpoint {
            Endpoint::Chat => "chatcmpl",
            Endpoint::Completion => "cmpl",
        };
        Ok(PendingReply {
            endpoint,
            model: self.name.clone(),
            vocabulary: self.vocabulary.clone(),
            id: format!("{prefix}-{}-{number}", seconds()),
            readers,
            prompt_tokens,
            stream_usage: params.stream_usage,
            events,
        })
    }
}
