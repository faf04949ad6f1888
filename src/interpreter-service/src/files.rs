//! Routes for the files of a session: upload, list, download, remove.

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
use tokio::sync::mpsc;

use super::Service;
use super::error::ApiError;
use super::guard::Client;
use super::registry::Sandbox;
use pybench_interpreter::FileEntry;

/// Time limit for the next bytes of an upload.
pub(super) const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit of an upload.
const MAX_UPLOAD_TIME: Duration = Duration::from_secs(1800);
/// Bytes sent at a time.
const CHUNK: usize = 64 << 10;

/// Query of a folder listing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Listing {
    /// Folder, relative to the workspace [default: the workspace].
    #[serde(default)]
    path: String,
    /// Levels of folders to list [default: 1, only the folder itself].
    #[serde(default = "one")]
    depth: usize,
}

fn one() -> usize {
    1
}

/// Lists a folder.
pub(super) async fn list(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    Query(listing): Query<Listing>,
) -> Result<Json<Vec<FileEntry>>, ApiError> {
    let files = service
        .registry
        .client_sandbox(&client, &id)?
        .files()?
        .clone();
    let list = move || files.list(&listing.path, listing.depth);
    Ok(Json(blocking(list).await??))
}

/// Uploads a file: the body is its content.
pub(super) async fn upload(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path((id, path)): Path<(String, String)>,
    body: Body,
) -> Result<(StatusCode, Json<FileEntry>), ApiError> {
    let sandbox = service.registry.client_sandbox(&client, &id)?;
    let entry = receive(
        &sandbox,
        &path,
        body.into_data_stream(),
        service.options.upload,
    );
    Ok((StatusCode::CREATED, Json(entry.await?)))
}

/// Downloads a file.
pub(super) async fn download(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path((id, path)): Path<(String, String)>,
) -> Result<Response, ApiError> {
    let sandbox = service.registry.client_sandbox(&client, &id)?;
    send(&sandbox, &path).await
}

/// Removes a file, or a folder with its contents.
pub(super) async fn remove(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path((id, path)): Path<(String, String)>,
) -> Result<StatusCode, ApiError> {
    let files = service
        .registry
        .client_sandbox(&client, &id)?
        .files()?
        .clone();
    blocking(move || files.remove(&path)).await??;
    Ok(StatusCode::NO_CONTENT)
}

/// Runs blocking file operations on another thread.
pub(super) async fn blocking<T: Send + 'static>(
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(job).await.map_err(|error| {
        tracing::error!("a file job failed: {error}");
        ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the file could not be accessed",
        )
    })
}

/// Streams a body into a workspace file, until the sandbox ends.
pub(super) async fn receive<E: std::fmt::Display>(
    sandbox: &Sandbox,
    path: &str,
    body: impl Stream<Item = Result<Bytes, E>>,
    most: u64,
) -> Result<FileEntry, ApiError> {
    let (files, path) = (sandbox.files()?.clone(), path.to_owned());
    let mut ended = std::pin::pin!(sandbox.ended());
    let mut upload = blocking(move || files.create(&path, most)).await??;
    let mut body = std::pin::pin!(body);
    let until = tokio::time::Instant::now() + MAX_UPLOAD_TIME;
    loop {
        let timeout = until.min(tokio::time::Instant::now() + STALL_TIMEOUT);
        let piece = tokio::select! {
            piece = tokio::time::timeout_at(timeout, body.next()) => piece,
            () = &mut ended => return Err(ApiError::missing("the session")),
        };
        let stalled = |_| {
            ApiError::new(
                StatusCode::REQUEST_TIMEOUT,
                "the upload stalled or took too long",
            )
        };
        match piece.map_err(stalled)? {
            // A chunk is small and is written to memory or the page cache.
            Some(Ok(piece)) => upload.write(&piece)?,
            Some(Err(error)) => {
                return Err(ApiError::bad(format!("the upload was aborted: {error}")));
            }
            None => break,
        }
    }
    Ok(blocking(move || upload.finish()).await??)
}

/// Streams a file as the response, until the sandbox ends.
pub(super) async fn send(sandbox: &Sandbox, path: &str) -> Result<Response, ApiError> {
    let (files, path) = (sandbox.files()?.clone(), path.to_owned());
    let (file, size) = blocking(move || files.open(&path)).await??;
    // If the file grows, only the announced size is sent; if it shrinks, the connection is aborted.
    let pieces = stream::try_unfold((file, size), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let read = move || {
            let mut piece = vec![0; CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
            let count = file.read(&mut piece)?;
            piece.truncate(count);
            Ok::<_, std::io::Error>((file, piece))
        };
        let (file, piece) = tokio::task::spawn_blocking(read)
            .await
            .map_err(std::io::Error::other)??;
        match piece.len() as u64 {
            0 => Err(std::io::Error::other(
                "the file became shorter while it was sent",
            )),
            count => Ok(Some((Bytes::from(piece), (file, left - count)))),
        }
    });
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_LENGTH, size.to_string()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    let pieces = until(sandbox.ended(), pieces);
    Ok((headers, Body::from_stream(pieces)).into_response())
}

/// The items of a stream until `ended` resolves. A task of its own reads it, so that it is dropped then even if
/// its items are not taken.
fn until<T: Send + 'static>(
    ended: impl Future<Output = ()> + Send + 'static,
    source: impl Stream<Item = T> + Send + 'static,
) -> impl Stream<Item = T> {
    let (sender, receiver) = mpsc::channel(1);
    let pump = async move {
        let mut source = std::pin::pin!(source);
        while let Some(item) = source.next().await {
            if sender.send(item).await.is_err() {
                break;
            }
        }
    };
    tokio::spawn(async move {
        tokio::select! {
            () = pump => {}
            () = ended => {}
        }
    });
    stream::unfold(receiver, async |mut receiver| {
        Some((receiver.recv().await?, receiver))
    })
}
