//! Parts of files as pages show them, and HTML files in a frame that may do nothing.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use pybench_run::RunError;
use pybench_types::id::Digest;

use crate::edit::routes::Studio;
use crate::file_answers;
use crate::file_page::{self, FilePage, FilePageQuery};
use crate::handlers::{ApiError, not_found, with_source};
use crate::sources::Sources;

pub(super) fn router() -> Router<Studio> {
    Router::new()
        .route("/api/data/{name}/files/{id}/page", get(page))
        .route("/api/data/{name}/files/{id}/frame", get(frame))
}

fn digest(id: String) -> Result<Digest, ApiError> {
    Digest::try_from(id).map_err(|_| not_found("the id of a file has 64 hex digits"))
}

async fn page(
    State(sources): State<Arc<Sources>>,
    Path((name, id)): Path<(String, String)>,
    query: Result<Query<FilePageQuery>, QueryRejection>,
) -> Result<Json<FilePage>, ApiError> {
    let Query(query) = query?;
    let id = digest(id)?;
    let reader = file_answers::reader().await;
    with_source(sources, name, move |opened| {
        // The file is read to its end even if the browser has left.
        let _reader = reader;
        let file = opened.open_file(&id);
        let file = file.map_err(|error| not_found(error.to_string()))?;
        let page = file_page::read(file, &query).map_err(RunError::io(id.to_string()))?;
        Ok(Json(page))
    })
    .await
}

async fn frame(
    State(sources): State<Arc<Sources>>,
    Path((name, id)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let id = digest(id)?;
    let reader = file_answers::reader().await;
    with_source(sources, name, move |opened| {
        let _reader = reader;
        let bytes = opened.file(&id);
        let bytes = bytes.map_err(|error| not_found(error.to_string()))?;
        file_answers::frame(&bytes, "private, max-age=3600")
    })
    .await
}
