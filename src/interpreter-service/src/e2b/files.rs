//! `/files` and `/health` of E2B's sandbox daemon: raw and multipart uploads, downloads.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, FromRequest, Multipart, Query, Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use futures::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inside;
use crate::Service;
use crate::body_budget::Share;
use crate::error::ApiError;
use crate::files::{STALL_TIMEOUT, receive, send};
use crate::registry::Sandbox;
use pybench_interpreter::FileEntry;

/// Maximum number of files in one upload.
const MAX_PARTS: usize = 256;

/// Query for a file.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in super::super) struct FileQuery {
    /// Path: absolute below `/home/user` or `/workspace`, or relative to it.
    path: Option<String>,
}

/// A file that was written.
#[derive(Debug, Serialize, JsonSchema)]
pub(in super::super) struct Written {
    name: String,
    r#type: &'static str,
    /// Path as sessions see it.
    path: String,
}

impl From<FileEntry> for Written {
    fn from(entry: FileEntry) -> Self {
        let name = entry.path.rsplit('/').next().unwrap_or_default();
        Self {
            name: name.to_owned(),
            r#type: "file",
            path: inside(&entry.path),
        }
    }
}

/// Reports that the sandbox is running; authentication has already checked this.
pub(in super::super) async fn health() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// Reads a file.
pub(in super::super) async fn read(
    Extension(sandbox): Extension<Arc<Sandbox>>,
    Query(query): Query<FileQuery>,
) -> Result<Response, ApiError> {
    let path = query
        .path
        .ok_or_else(|| ApiError::bad("the query parameter `path` is missing"))?;
    send(&sandbox, &path).await
}

/// Writes files: one as the body, or several as parts of a form.
pub(in super::super) async fn write(
    State(service): State<Arc<Service>>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    Query(query): Query<FileQuery>,
    request: Request,
) -> Result<Json<Vec<Written>>, ApiError> {
    let most = service.options.upload;
    if is_form(request.headers())? {
        let share = Share::of(&request)?;
        let form = Multipart::from_request(counted(request, share.clone()), &()).await;
        let form = form.map_err(|error| ApiError::bad(error.body_text()))?;
        return form_parts(&sandbox, &share, form, query.path, most).await;
    }
    let path = query
        .path
        .ok_or_else(|| ApiError::bad("the query parameter `path` is missing"))?;
    let body = request.into_body().into_data_stream();
    Ok(Json(vec![
        receive(&sandbox, &path, body, most).await?.into(),
    ]))
}

/// Whether the body is a form rather than raw bytes.
fn is_form(headers: &HeaderMap) -> Result<bool, ApiError> {
    let unsupported = |text| ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    if headers.contains_key(CONTENT_ENCODING) {
        return Err(unsupported(
            "compressed uploads are not supported: send the file uncompressed",
        ));
    }
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    match kind.and_then(|kind| kind.split(';').next()).map(str::trim) {
        Some("multipart/form-data") => Ok(true),
        Some("application/octet-stream") => Ok(false),
        _ => Err(unsupported(
            "expected multipart/form-data or application/octet-stream",
        )),
    }
}

/// The request with its bytes counted: the parser of forms keeps what it has not handed out.
fn counted(request: Request, share: Arc<Share>) -> Request {
    request.map(|body| {
        let count = move |piece: Result<Bytes, axum::Error>| {
            let piece = piece?;
            let full = |error: ApiError| axum::Error::new(std::io::Error::other(error.message));
            share.grow(piece.len()).map_err(full)?;
            Ok::<_, axum::Error>(piece)
        };
        Body::from_stream(body.into_data_stream().map(count))
    })
}

async fn form_parts(
    sandbox: &Sandbox,
    share: &Share,
    mut form: Multipart,
    path: Option<String>,
    most: u64,
) -> Result<Json<Vec<Written>>, ApiError> {
    let mut written = Vec::new();
    let broken = |error: axum::extract::multipart::MultipartError| ApiError::bad(error.body_text());
    let stalled = |_| ApiError::new(StatusCode::REQUEST_TIMEOUT, "the upload stalled");
    loop {
        let part = tokio::time::timeout(STALL_TIMEOUT, form.next_field()).await;
        let Some(part) = part.map_err(stalled)?.map_err(broken)? else {
            break;
        };
        share.release();
        if part.name() != Some("file") {
            continue;
        }
        if written.len() >= MAX_PARTS {
            return Err(ApiError::bad(format!(
                "more than {MAX_PARTS} files in one upload"
            )));
        }
        // The query's path, if any, takes precedence over the part's file name.
        let path = path.clone().or_else(|| part.file_name().map(str::to_owned));
        let path = path.ok_or_else(|| {
            ApiError::bad("a file has no path: give it a file name, or the query parameter `path`")
        })?;
        let part = part.inspect(|_| share.release());
        written.push(receive(sandbox, &path, part, most).await?.into());
    }
    match written.is_empty() {
        true => Err(ApiError::bad("the form contains no part named `file`")),
        false => Ok(Json(written)),
    }
}
