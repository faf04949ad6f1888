//! The routes. Each view of the app is one of them, and answers JSON.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use pybench_run::{ContentStore, RunError};
use pybench_types::id::Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::index::{Facet, Index, ListQuery, Page};
use crate::{access, assets};

/// A run or dataset that is open.
pub struct Source {
    pub name: String,
    pub index: Index,
    /// Inputs and outputs; `None` for a dataset.
    pub store: Option<ContentStore>,
}

/// What the app shows first.
#[derive(Serialize, JsonSchema)]
struct SourceInfo {
    name: String,
    total: u64,
    facets: Vec<Facet>,
}

/// The routes of the studio, behind its token.
pub fn router(source: Arc<Source>, token: access::Token) -> Router {
    Router::new()
        .route("/api/source", get(source_info))
        .route("/api/rows", get(rows))
        .route("/api/rows/{number}", get(record))
        .route("/api/files/{id}", get(file))
        .fallback(assets::serve)
        .with_state(source)
        .layer(axum::middleware::from_fn_with_state(token, access::require))
}

struct Refusal(StatusCode, String);

impl From<RunError> for Refusal {
    fn from(error: RunError) -> Self {
        let status = match error {
            RunError::BadInput(_) => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"message": self.1}))).into_response()
    }
}

/// Runs work that reads files or the index.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err(Refusal(
            StatusCode::INTERNAL_SERVER_ERROR,
            error.to_string(),
        ))
    })
}

async fn source_info(State(source): State<Arc<Source>>) -> Result<Json<SourceInfo>, Refusal> {
    blocking(move || {
        let one = ListQuery {
            count: 1,
            ..ListQuery::default()
        };
        Ok(Json(SourceInfo {
            name: source.name.clone(),
            total: source.index.page(&one)?.total,
            facets: source.index.facets()?,
        }))
    })
    .await
}

async fn rows(
    State(source): State<Arc<Source>>,
    Query(query): Query<ListQuery>,
) -> Result<Json<Page>, Refusal> {
    blocking(move || Ok(Json(source.index.page(&query)?))).await
}

async fn record(
    State(source): State<Arc<Source>>,
    Path(number): Path<u64>,
) -> Result<Json<Value>, Refusal> {
    blocking(move || {
        let view = source.index.view(number)?;
        let missing = || {
            Refusal(
                StatusCode::NOT_FOUND,
                format!("there is no trajectory {number}"),
            )
        };
        view.map(Json).ok_or_else(missing)
    })
    .await
}

#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

/// A file of the run. Only pictures and sounds are shown by the browser, and nothing in them may do anything; other files
/// are downloaded.
async fn file(
    State(source): State<Arc<Source>>,
    Path(id): Path<String>,
    Query(Named { name }): Query<Named>,
) -> Result<Response, Refusal> {
    let missing = || Refusal(StatusCode::NOT_FOUND, "there is no such file".to_owned());
    let id = Digest::try_from(id).map_err(|_| missing())?;
    let bytes = blocking(move || {
        let store = source.store.as_ref().ok_or_else(missing)?;
        store.get(&id).map_err(|_| missing())
    })
    .await?;
    let (kind, place) = match shown_as(&name) {
        Some(kind) => (kind, "inline"),
        None => ("application/octet-stream", "attachment"),
    };
    let headers = [
        (CONTENT_TYPE, kind),
        (CONTENT_DISPOSITION, place),
        (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
    ];
    Ok((headers, bytes).into_response())
}

/// The type of a file that browsers may show.
fn shown_as(name: &str) -> Option<&'static str> {
    let ending = name.rsplit('.').next()?.to_ascii_lowercase();
    Some(match &*ending {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "bmp" => "image/bmp",
        "wav" => "audio/wav",
        "mp3" => "audio/mpeg",
        "ogg" => "audio/ogg",
        "flac" => "audio/flac",
        "mp4" => "video/mp4",
        _ => return None,
    })
}
