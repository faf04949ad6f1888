//! `/files` and `/health` of E2B's daemon in the sandbox: raw and multipart uploads, downloads.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, FromRequest, Multipart, Query, Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::inside;
use crate::interpreter::Entry;
use crate::interpreter::service::Service;
use crate::interpreter::service::error::Refusal;
use crate::interpreter::service::files::{receive, send};
use crate::interpreter::service::registry::Sandbox;

/// Most files in one upload.
const MAX_PARTS: usize = 256;

/// Which file.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in super::super) struct FileQuery {
    /// Absolute below `/home/user` or `/workspace`, or relative to them.
    path: Option<String>,
}

/// A file that was written.
#[derive(Debug, Serialize, JsonSchema)]
pub(in super::super) struct Written {
    name: String,
    r#type: &'static str,
    /// As sessions see it.
    path: String,
}

impl From<Entry> for Written {
    fn from(entry: Entry) -> Self {
        let name = entry.path.rsplit('/').next().unwrap_or_default();
        Self {
            name: name.to_owned(),
            r#type: "file",
            path: inside(&entry.path),
        }
    }
}

/// Whether the sandbox lives; that it does was found out on the way here.
pub(in super::super) async fn health() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// Read a file.
pub(in super::super) async fn read(
    Extension(sandbox): Extension<Arc<Sandbox>>,
    Query(query): Query<FileQuery>,
) -> Result<Response, Refusal> {
    let path = query.path.ok_or_else(|| Refusal::bad("path is missing"))?;
    send(sandbox.files()?, &path).await
}

/// Write files: one as the body, or several as parts of a form.
pub(in super::super) async fn write(
    State(service): State<Arc<Service>>,
    Extension(sandbox): Extension<Arc<Sandbox>>,
    Query(query): Query<FileQuery>,
    request: Request,
) -> Result<Json<Vec<Written>>, Refusal> {
    let (files, most) = (sandbox.files()?, service.options.upload);
    if is_form(request.headers())? {
        let form = Multipart::from_request(request, &()).await;
        let form = form.map_err(|error| Refusal::bad(error.body_text()))?;
        return form_parts(&sandbox, form, query.path, most).await;
    }
    let path = query.path.ok_or_else(|| Refusal::bad("path is missing"))?;
    let body = request.into_body().into_data_stream();
    Ok(Json(vec![receive(files, &path, body, most).await?.into()]))
}

/// Whether the body is a form rather than the bytes themselves.
fn is_form(headers: &HeaderMap) -> Result<bool, Refusal> {
    let unsupported = |text| Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text);
    if headers.contains_key(CONTENT_ENCODING) {
        return Err(unsupported(
            "compressed uploads are not taken: send the file as it is",
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

async fn form_parts(
    sandbox: &Sandbox,
    mut form: Multipart,
    path: Option<String>,
    most: u64,
) -> Result<Json<Vec<Written>>, Refusal> {
    let mut written = Vec::new();
    let broken = |error: axum::extract::multipart::MultipartError| Refusal::bad(error.body_text());
    while let Some(part) = form.next_field().await.map_err(broken)? {
        if part.name() != Some("file") {
            continue;
        }
        if written.len() >= MAX_PARTS {
            return Err(Refusal::bad(format!("more than {MAX_PARTS} files at once")));
        }
        // The path of the query is for a single file; of several, each has its own.
        let path = path.clone().or_else(|| part.file_name().map(str::to_owned));
        let path = path.ok_or_else(|| Refusal::bad("a file without a path"))?;
        written.push(receive(sandbox.files()?, &path, part, most).await?.into());
    }
    match written.is_empty() {
        true => Err(Refusal::bad("the form holds no file")),
        false => Ok(Json(written)),
    }
}
