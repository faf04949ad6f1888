//! Files of a session: upload, list, download, remove.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Path, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream::{self, Stream, StreamExt};
use schemars::JsonSchema;
use serde::Deserialize;

use super::Service;
use super::error::Refusal;
use super::guard::Client;
use crate::interpreter::{Entry, Files};

/// How long an upload may stand still.
const STALL: Duration = Duration::from_secs(60);

/// How long an upload may take in all.
const LONGEST: Duration = Duration::from_secs(1800);
/// Bytes sent at once.
const PIECE: usize = 64 << 10;

/// Which folder.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Listing {
    /// The folder, relative to the workspace [default: the workspace].
    #[serde(default)]
    path: String,
    /// Folders below it that are listed too [default: 1, itself only].
    #[serde(default = "one")]
    depth: usize,
}

fn one() -> usize {
    1
}

/// What lies in a folder.
pub(super) async fn list(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    Query(listing): Query<Listing>,
) -> Result<Json<Vec<Entry>>, Refusal> {
    let files = service.registry.of(&client, &id)?.files()?.clone();
    let list = move || files.list(&listing.path, listing.depth);
    Ok(Json(blocking(list).await??))
}

/// Upload a file: the body is its content.
pub(super) async fn upload(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path((id, path)): Path<(String, String)>,
    body: Body,
) -> Result<(StatusCode, Json<Entry>), Refusal> {
    let sandbox = service.registry.of(&client, &id)?;
    let entry = receive(
        sandbox.files()?,
        &path,
        body.into_data_stream(),
        service.options.upload,
    );
    Ok((StatusCode::CREATED, Json(entry.await?)))
}

/// Download a file.
pub(super) async fn download(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path((id, path)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    send(service.registry.of(&client, &id)?.files()?, &path).await
}

/// Remove a file, or a folder with all in it.
pub(super) async fn remove(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path((id, path)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    let files = service.registry.of(&client, &id)?.files()?.clone();
    blocking(move || files.remove(&path)).await??;
    Ok(StatusCode::NO_CONTENT)
}

/// Run what may wait for a disk.
pub(super) async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(job).await.map_err(|error| {
        tracing::error!("a file job failed: {error}");
        Refusal::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the file could not be reached",
        )
    })
}

/// Write a body into a workspace as it comes.
pub(super) async fn receive<E: std::fmt::Display>(
    files: &Files,
    path: &str,
    body: impl Stream<Item = Result<Bytes, E>>,
    most: u64,
) -> Result<Entry, Refusal> {
    let (files, path) = (files.clone(), path.to_owned());
    let mut upload = blocking(move || files.create(&path, most)).await??;
    let mut body = std::pin::pin!(body);
    let until = tokio::time::Instant::now() + LONGEST;
    loop {
        let patience = until.min(tokio::time::Instant::now() + STALL);
        let piece = tokio::time::timeout_at(patience, body.next()).await;
        let stalled = |_| {
            Refusal::new(
                StatusCode::REQUEST_TIMEOUT,
                "the upload stood still, or took too long",
            )
        };
        match piece.map_err(stalled)? {
            // A piece is small and goes to memory or the page cache.
            Some(Ok(piece)) => upload.write(&piece)?,
            Some(Err(error)) => return Err(Refusal::bad(format!("the upload broke off: {error}"))),
            None => break,
        }
    }
    Ok(blocking(move || upload.finish()).await??)
}

/// A file as a response, read while it is sent.
pub(super) async fn send(files: &Files, path: &str) -> Result<Response, Refusal> {
    let (files, path) = (files.clone(), path.to_owned());
    let (file, size) = blocking(move || files.open(&path)).await??;
    // It may grow or shrink meanwhile: no more than was announced, and a break where it is less.
    let pieces = stream::try_unfold((file, size), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let read = move || {
            let mut piece = vec![0; PIECE.min(usize::try_from(left).unwrap_or(PIECE))];
            let count = file.read(&mut piece)?;
            piece.truncate(count);
            Ok::<_, std::io::Error>((file, piece))
        };
        let (file, piece) = tokio::task::spawn_blocking(read)
            .await
            .map_err(std::io::Error::other)??;
        match piece.len() as u64 {
            0 => Err(std::io::Error::other("the file became shorter")),
            count => Ok(Some((Bytes::from(piece), (file, left - count)))),
        }
    });
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_LENGTH, size.to_string()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}
