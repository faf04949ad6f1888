//! Parts of a session's files as pages show them, while the session runs and may change them.

use std::io::Read as _;
use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use pybench_run::RunError;

use super::chats::Chats;
use super::routes::{ChatState, FileQuery, running_files};
use crate::file_answers::{self, MAX_FRAME};
use crate::file_page::{self, FilePage, FilePageQuery};
use crate::handlers::{ApiError, blocking, not_found};

pub(crate) fn router() -> Router<ChatState> {
    Router::new()
        .route("/api/chats/{id}/file/page", get(page))
        .route("/api/chats/{id}/file/frame", get(frame))
}

/// A part of the file that has this path as its name.
async fn page(
    State(chats): State<Arc<Chats>>,
    Path(id): Path<String>,
    query: Result<Query<FilePageQuery>, QueryRejection>,
) -> Result<Json<FilePage>, ApiError> {
    let Query(query) = query?;
    let files = running_files(&chats, &id)?;
    let reader = file_answers::reader().await;
    blocking(move || {
        // The file is read to its end even if the browser has left.
        let _reader = reader;
        let opened = files.open(&query.name);
        let (file, _) = opened.map_err(|error| not_found(error.to_string()))?;
        let page = file_page::read(file, &query).map_err(RunError::io(query.name.clone()))?;
        Ok(Json(page))
    })
    .await
}

async fn frame(
    State(chats): State<Arc<Chats>>,
    Path(id): Path<String>,
    query: Result<Query<FileQuery>, QueryRejection>,
) -> Result<Response, ApiError> {
    let Query(FileQuery { path }) = query?;
    let files = running_files(&chats, &id)?;
    let reader = file_answers::reader().await;
    blocking(move || {
        let _reader = reader;
        let opened = files.open(&path);
        let (file, _) = opened.map_err(|error| not_found(error.to_string()))?;
        let mut html = Vec::new();
        let read = file.take(MAX_FRAME as u64 + 1).read_to_end(&mut html);
        read.map_err(RunError::io(path))?;
        file_answers::frame(&html, "no-store")
    })
    .await
}
