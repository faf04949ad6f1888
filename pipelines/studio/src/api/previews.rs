//! Parts of files as pages show them, and HTML files in a frame that may do nothing.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderName;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use pybench_files::text;
use pybench_run::RunError;
use pybench_types::id::Digest;
use tokio::sync::Semaphore;

use crate::edit::routes::Studio;
use crate::file_page::{self, FilePage, FilePageQuery};
use crate::handlers::{ApiError, not_found, with_source};
use crate::sources::Sources;

/// Files that are read at the same time: each may take much memory.
static READERS: Semaphore = Semaphore::const_new(3);

/// Maximum size of an HTML file that is shown in a frame, bytes.
const MAX_FRAME: usize = 4 << 20;

/// What an HTML file may do: show its own texts, styles and pictures. It has no scripts, no forms, no network, and an origin
/// of its own, also if it is opened outside of the frame.
const FRAME_POLICY: &str = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:; \
                            base-uri 'none'; form-action 'none'; frame-ancestors 'self'";

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
    // The semaphore is never closed.
    let reader = READERS.acquire().await;
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
    // The semaphore is never closed.
    let reader = READERS.acquire().await;
    let html = with_source(sources, name, move |opened| {
        let _reader = reader;
        let bytes = opened.file(&id);
        let bytes = bytes.map_err(|error| not_found(error.to_string()))?;
        if bytes.len() > MAX_FRAME {
            return Err(not_found("the file is too large for a frame; download it"));
        }
        let decoded = text::decode(&bytes).map_err(not_found)?;
        Ok(without_links(&decoded.text))
    })
    .await?;
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, FRAME_POLICY),
        (CACHE_CONTROL, "private, max-age=3600"),
        // Links of the file would else be looked up before they are followed.
        (HeaderName::from_static("x-dns-prefetch-control"), "off"),
    ];
    Ok((headers, html).into_response())
}

/// HTML whose `<link>` elements are comments: browsers connect to the hosts that some of them name, and no policy prevents it.
fn without_links(html: &str) -> String {
    let lower = html.to_ascii_lowercase();
    let (mut safe, mut from) = (String::with_capacity(html.len()), 0);
    for (at, _) in lower.match_indices("<link") {
        safe += &html[from..=at];
        safe.push('!');
        from = at + 1;
    }
    safe + &html[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_become_comments() {
        let html = "é<LINK rel=preconnect href=//a><p title='<link>'>&lt;link<lin";
        let safe = "é<!LINK rel=preconnect href=//a><p title='<!link>'>&lt;link<lin";
        assert_eq!(without_links(html), safe);
    }
}
