//! Streams the events of a running cell.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream, StreamExt};
use schemars::JsonSchema;
use serde::Serialize;

use super::error::ApiError;
use super::kernel::{FinishedCell, HiddenCode, Kernel};
use pybench_interpreter::Watcher;
use pybench_types::observation::{CellError, Output, Stopped};

/// An output of a running cell, or its end.
pub(super) enum CellEvent {
    Output(Output),
    End(Result<FinishedCell, ApiError>),
}

/// Runs a cell and streams its events. Dropping the stream interrupts the cell.
pub(super) fn follow(
    kernel: Arc<Kernel>,
    code: String,
    hidden: Option<HiddenCode>,
) -> impl Stream<Item = CellEvent> + Send + 'static {
    let (watcher, receiver) = Watcher::new();
    let running = tokio::spawn(kernel.run(code, hidden, watcher));
    stream::unfold(
        (receiver, Some(running)),
        async |(mut receiver, running)| {
            // The channel closes when the cell has ended.
            if let Some(output) = receiver.recv().await {
                return Some((CellEvent::Output(output), (receiver, running)));
            }
            let result = running?.await;
            let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
            let failed = |_| Err(ApiError::new(status, "the session failed"));
            let result = result.unwrap_or_else(failed);
            Some((CellEvent::End(result), (receiver, None)))
        },
    )
}

/// Runs a cell and waits for its end. Dropping the future interrupts the cell.
pub(super) async fn wait(kernel: Arc<Kernel>, code: String) -> Result<FinishedCell, ApiError> {
    let (watcher, mut receiver) = Watcher::new();
    let running = kernel.run(code, None, watcher);
    tokio::pin!(running);
    loop {
        tokio::select! {
            result = &mut running => return result,
            Some(_) = receiver.recv() => {}
        }
    }
}

/// An event of a running cell.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// The cell has produced an output.
    Output(Output),
    /// The cell has ended; the last event.
    End {
        /// Number of the cell in its session, from 1.
        count: u64,
        /// The exception that the cell raised.
        error: Option<CellError>,
        /// Why the cell was stopped.
        stopped: Option<Stopped>,
    },
    /// The cell could not be run; the last event.
    Failed {
        /// The reason.
        message: String,
    },
}

impl From<CellEvent> for Event {
    fn from(event: CellEvent) -> Self {
        match event {
            CellEvent::Output(output) => Self::Output(output),
            CellEvent::End(Ok(finished)) => Self::End {
                count: finished.count,
                error: finished.observation.error,
                stopped: finished.observation.stopped,
            },
            CellEvent::End(Err(error)) => Self::Failed {
                message: error.message,
            },
        }
    }
}

/// A response with events as lines of JSON.
pub(super) fn lines<T: Serialize>(events: impl Stream<Item = T> + Send + 'static) -> Response {
    let lines = events.map(|event| Ok::<_, Infallible>(json(&event) + "\n"));
    let headers = [
        (CONTENT_TYPE, "application/x-ndjson"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(lines)).into_response()
}

/// A response with server-sent events.
pub(super) fn server_sent<T: Serialize>(
    events: impl Stream<Item = T> + Send + 'static,
) -> Response {
    // Compact JSON has no line breaks, so one `data` line is enough.
    let lines = events.map(|event| Ok::<_, Infallible>(format!("data: {}\n\n", json(&event))));
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(lines)).into_response()
}

fn json(event: &impl Serialize) -> String {
    serde_json::to_string(event).unwrap_or_else(|error| {
        tracing::error!("an event cannot be serialized: {error}");
        r#"{"event":"failed","message":"an output could not be sent"}"#.to_owned()
    })
}
