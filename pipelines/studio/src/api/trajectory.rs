//! One trajectory: its page, what is recorded of it, and its files.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use pybench_types::id::Digest;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::edit::routes::Studio;
use crate::file_types::media_type;
use crate::handlers::{ApiError, found, not_found, record, with_source};
use crate::review;
use crate::saved_edits;
use crate::sources::{Opened, Sources};
use crate::view::View;

/// Maximum number of bytes of a text preview.
const MAX_PREVIEW: usize = 64 << 10;

pub(super) fn router() -> Router<Studio> {
    Router::new()
        .route("/api/data/{name}/{number}", get(view))
        .route("/api/data/{name}/{number}/raw", get(raw))
        .route("/api/data/{name}/files/{id}", get(file))
}

/// Which page of a long trajectory is asked for. The address of the page has the filters of the list beside it.
#[derive(Deserialize, JsonSchema)]
pub(super) struct TurnQuery {
    /// A turn that the page has, from 1.
    #[serde(default)]
    turn: u64,
}

async fn view(
    State(sources): State<Arc<Sources>>,
    Path((name, number)): Path<(String, String)>,
    query: Result<Query<TurnQuery>, QueryRejection>,
) -> Result<Json<View>, ApiError> {
    let Query(query) = query?;
    with_source(sources, name, move |opened| {
        Ok(Json(shown(opened, &number, query.turn)?))
    })
    .await
}

async fn raw(
    State(sources): State<Arc<Sources>>,
    Path((name, number)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    with_source(sources, name, move |opened| {
        let (_, json) = record(opened, &number)?;
        Ok(([(CONTENT_TYPE, "application/json")], json).into_response())
    })
    .await
}

/// The page of a trajectory that has this turn, with the decisions on it and what people made of it.
pub(super) fn shown(opened: &Opened, number: &str, turn: u64) -> Result<View, ApiError> {
    let mut view = found(opened, number, |number| opened.index.view(number, turn))?;
    view.mark_missing(|id| opened.has(id));
    if let Some(price) = opened.prices.get(&view.row.teacher) {
        view.add_costs(price);
    }
    if let Ok(folder) = opened.run() {
        view.reviews = review::read_of(folder, &view.row.id)?;
        view.reviewable = !view.row.id.is_empty();
        view.edits = saved_edits::edits_of(folder, &view.row.id)?;
    }
    Ok(view)
}

/// How a file is asked for.
#[derive(Deserialize, JsonSchema)]
pub(super) struct FileQuery {
    /// Its name, which says how it is shown.
    #[serde(default)]
    name: String,
    /// Only so many bytes.
    head: Option<usize>,
}

/// A file of a run or dataset. Nothing in it can be executed: it is an image, a sound or plain text, or it is downloaded.
async fn file(
    State(sources): State<Arc<Sources>>,
    Path((name, id)): Path<(String, String)>,
    query: Result<Query<FileQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(query) = query?;
    let id = Digest::try_from(id).map_err(|_| not_found("the id of a file has 64 hex digits"))?;
    let found = with_source(sources, name, move |opened| Ok(opened.file(&id)?)).await;
    let mut bytes = found.map_err(|ApiError(_, text)| not_found(text))?;
    if let Some(head) = query.head {
        bytes.truncate(head.min(MAX_PREVIEW));
    }
    let (media, disposition) = match media_type(&query.name) {
        Some(media) => (media, "inline"),
        None => ("application/octet-stream", "attachment"),
    };
    let headers = [
        (CONTENT_TYPE, media),
        (CONTENT_DISPOSITION, disposition),
        (CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
        (CACHE_CONTROL, "private, max-age=3600"),
    ];
    Ok((headers, bytes).into_response())
}
