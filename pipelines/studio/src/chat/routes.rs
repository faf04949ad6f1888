//! The routes for conversations.

use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRef, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pybench_chat::export::SaveAs;
use pybench_interpreter::Files;
use pybench_run::RunError;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::chats::{Chats, MAX_CHATS};
use super::open_chat::{OpenChat, Order};
use super::topic::Topic;
use super::view::{ChatList, ChatRequest, ChatTopic, ChatView};
use crate::file_types::media_type;
use crate::handlers::{ApiError, blocking, not_found, with_source};
use crate::sources::{Opened, Sources};

/// Maximum number of bytes of a request's body: a message.
const MAX_BODY: usize = 2 << 20;
/// Maximum number of bytes of a file that is put into a session, and of one that is taken out.
const MAX_FILE: usize = 32 << 20;
const MAX_DOWNLOAD: u64 = 64 << 20;
/// A request for a state waits for a change, at most so long.
const WAIT: Duration = Duration::from_secs(15);

/// What the routes use.
#[derive(Clone)]
pub(crate) struct ChatState {
    pub(crate) chats: Arc<Chats>,
    pub(crate) sources: Arc<Sources>,
}

impl FromRef<ChatState> for Arc<Chats> {
    fn from_ref(state: &ChatState) -> Self {
        state.chats.clone()
    }
}

/// The routes for conversations.
pub(crate) fn router() -> Router<ChatState> {
    // Base64 takes four bytes for three.
    let with_file = DefaultBodyLimit::max(MAX_FILE / 3 * 4 + MAX_BODY);
    Router::new()
        .route("/api/chats", get(list).post(begin))
        .route("/api/chats/{id}", get(view).delete(close))
        .route("/api/chats/{id}/messages", post(send))
        .route("/api/chats/{id}/retry", post(retry))
        .route("/api/chats/{id}/continue", post(go_on))
        .route("/api/chats/{id}/stop", post(stop))
        .route("/api/chats/{id}/grade", post(grade))
        .route("/api/chats/{id}/dataset", post(add))
        .route("/api/chats/{id}/export/{form}", get(export))
        .route("/api/chats/{id}/file", get(file))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .route("/api/chats/{id}/files", put(put_file).layer(with_file))
}

async fn list(State(chats): State<Arc<Chats>>) -> Result<Json<ChatList>, ApiError> {
    blocking(move || Ok(Json(chats.list()?))).await
}

async fn begin(
    State(ChatState { chats, sources }): State<ChatState>,
    request: Result<Json<ChatRequest>, JsonRejection>,
) -> Result<Json<ChatView>, ApiError> {
    let Json(request) = request?;
    let topic = match request.about.clone() {
        Some(ChatTopic { name, number }) => {
            let read = move |opened: &Opened| Topic::read(opened, number);
            Some(with_source(sources, name, read).await?)
        }
        None => None,
    };
    let open = chats.open(&request, topic).await?.ok_or_else(|| {
        let text = format!(
            "{MAX_CHATS} conversations are open, as many as can be; leave one of their pages and try again"
        );
        ApiError(StatusCode::TOO_MANY_REQUESTS, text)
    })?;
    shown(open, 0, 0).await
}

/// The state of a conversation. Its files are listed in the session.
async fn shown(
    open: Arc<OpenChat>,
    generation: u64,
    from: usize,
) -> Result<Json<ChatView>, ApiError> {
    blocking(move || Ok(Json(open.view(generation, from)))).await
}

fn find(chats: &Chats, id: &str) -> Result<Arc<OpenChat>, ApiError> {
    let missing = "this conversation is not open: its page was left, or the studio was started again; open it again";
    chats.get(id).ok_or_else(|| not_found(missing))
}

/// What the asking page has already.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Known {
    /// The version; the answer waits for a later one.
    after: u64,
    generation: u64,
    /// Number of parts that it does not need again.
    from: usize,
}

async fn view(
    State(chats): State<Arc<Chats>>,
    Path(id): Path<String>,
    query: Result<Query<Known>, QueryRejection>,
) -> Result<Json<ChatView>, ApiError> {
    let Query(known) = query?;
    let open = find(&chats, &id)?;
    open.changed(known.after, WAIT).await;
    shown(open, known.generation, known.from).await
}

async fn close(State(chats): State<Arc<Chats>>, Path(id): Path<String>) -> Json<Value> {
    chats.close(&id);
    Json(json!({}))
}

/// A message of the person.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sent {
    text: String,
    /// Number of the message that it replaces.
    #[serde(default)]
    replaces: Option<usize>,
}

async fn send(
    State(chats): State<Arc<Chats>>,
    Path(id): Path<String>,
    request: Result<Json<Sent>, JsonRejection>,
) -> Result<Json<Value>, ApiError> {
    let Json(sent) = request?;
    ordered(
        &chats,
        &id,
        match sent.replaces {
            None => Order::Send(sent.text),
            Some(number) => Order::Edit(number, sent.text),
        },
    )
}

fn ordered(chats: &Chats, id: &str, order: Order) -> Result<Json<Value>, ApiError> {
    find(chats, id)?.order(order)?;
    Ok(Json(json!({})))
}

async fn retry(
    State(chats): State<Arc<Chats>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    ordered(&chats, &id, Order::Retry)
}

async fn go_on(
    State(chats): State<Arc<Chats>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    ordered(&chats, &id, Order::Continue)
}

async fn grade(
    State(chats): State<Arc<Chats>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    ordered(&chats, &id, Order::Grade)
}

async fn add(
    State(chats): State<Arc<Chats>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    ordered(&chats, &id, Order::Add)
}

async fn stop(
    State(chats): State<Arc<Chats>>,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    find(&chats, &id)?.stop();
    Ok(Json(json!({})))
}

/// A file for the session.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SentFile {
    name: String,
    base64: String,
}

async fn put_file(
    State(chats): State<Arc<Chats>>,
    Path(id): Path<String>,
    request: Result<Json<SentFile>, JsonRejection>,
) -> Result<Json<Value>, ApiError> {
    let Json(sent) = request?;
    let bytes = STANDARD.decode(&sent.base64).map_err(|error| {
        RunError::BadInput(format!("`base64` of the file is not base64: {error}"))
    })?;
    ordered(&chats, &id, Order::Put(sent.name, bytes))
}

/// Which file of the session is asked for. Pages add the version of the session, so that a changed file has another address.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct FileQuery {
    pub(super) path: String,
}

/// The files of a session that runs.
pub(super) fn running_files(chats: &Chats, id: &str) -> Result<Files, ApiError> {
    let files = find(chats, id)?.files();
    files.ok_or_else(|| not_found("the session does not run; send a message first"))
}

/// A file of the session. Nothing in it can be executed: it is an image, a sound or plain text, or it is downloaded.
async fn file(
    State(chats): State<Arc<Chats>>,
    Path(id): Path<String>,
    query: Result<Query<FileQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(FileQuery { path }) = query?;
    let files = running_files(&chats, &id)?;
    let named = path.clone();
    let bytes = blocking(move || {
        let (file, size) = files
            .open(&named)
            .map_err(|error| not_found(error.to_string()))?;
        if size > MAX_DOWNLOAD {
            let text = format!("the file has {size} bytes, and at most {MAX_DOWNLOAD} are sent");
            return Err(ApiError(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        let mut bytes = Vec::new();
        let read = file.take(MAX_DOWNLOAD).read_to_end(&mut bytes);
        read.map_err(RunError::io(named))?;
        Ok(bytes)
    })
    .await?;
    let (media, disposition) = match media_type(&path) {
        Some(media) => (media, "inline"),
        None => ("application/octet-stream", "attachment"),
    };
    let headers = [
        (CONTENT_TYPE, media),
        (CONTENT_DISPOSITION, disposition),
        (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
    ];
    Ok((headers, bytes).into_response())
}

/// The conversation as a file.
async fn export(
    State(chats): State<Arc<Chats>>,
    Path((id, form)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let form = SaveAs::named(&form)
        .ok_or_else(|| not_found("a conversation is saved as `notebook`, `json` or `html`"))?;
    let open = find(&chats, &id)?;
    let name = format!(
        "attachment; filename=\"chat-{}.{}\"",
        open.id,
        form.extension()
    );
    let text = blocking(move || Ok(open.export(form))).await?;
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_DISPOSITION, name),
        (
            CONTENT_SECURITY_POLICY,
            "sandbox; default-src 'none'".to_owned(),
        ),
    ];
    Ok((headers, text).into_response())
}
