//! A running cell as a stream of events.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use futures::stream::{self, Stream, StreamExt};
use schemars::JsonSchema;
use serde::Serialize;

use super::error::Refusal;
use super::kernel::{Around, Kernel, Ran};
use crate::interpreter::{CellError, Output, Stopped, Watcher};

/// What happens while a cell runs.
pub(super) enum Step {
    Output(Output),
    End(Result<Ran, Refusal>),
}

/// Run a cell and follow it. Dropping the stream interrupts the cell.
pub(super) fn follow(
    kernel: Arc<Kernel>,
    code: String,
    around: Option<Around>,
) -> impl Stream<Item = Step> + Send + 'static {
    let (watcher, receiver) = Watcher::new();
    let running = tokio::spawn(kernel.run(code, around, watcher));
    stream::unfold(
        (receiver, Some(running)),
        async |(mut receiver, running)| {
            // The cell's own end of the channel goes when it has ended.
            if let Some(output) = receiver.recv().await {
                return Some((Step::Output(output), (receiver, running)));
            }
            let result = running?.await;
            let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
            let failed = |_| Err(Refusal::new(status, "the session failed"));
            let result = result.unwrap_or_else(failed);
            Some((Step::End(result), (receiver, None)))
        },
    )
}

/// Run a cell and wait for its end. Dropping the future interrupts the cell.
pub(super) async fn wait(kernel: Arc<Kernel>, code: String) -> Result<Ran, Refusal> {
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

/// One event of our own stream.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Event {
    /// Something appeared.
    Output(Output),
    /// The cell has ended; the last event.
    End {
        /// Number of the cell in its session, from 1.
        count: u64,
        /// The exception it raised.
        error: Option<CellError>,
        /// Why it did not run to its end.
        stopped: Option<Stopped>,
    },
    /// The cell could not be run; the last event.
    Failed {
        /// Why.
        message: String,
    },
}

impl From<Step> for Event {
    fn from(step: Step) -> Self {
        match step {
            Step::Output(output) => Self::Output(output),
            Step::End(Ok(ran)) => Self::End {
                count: ran.count,
                error: ran.observation.error,
                stopped: ran.observation.stopped,
            },
            Step::End(Err(refusal)) => Self::Failed {
                message: refusal.message,
            },
        }
    }
}

/// Events as lines of JSON.
pub(super) fn lines<T: Serialize>(events: impl Stream<Item = T> + Send + 'static) -> Response {
    let lines = events.map(|event| Ok::<_, Infallible>(json(&event) + "\n"));
    let headers = [
        (CONTENT_TYPE, "application/x-ndjson"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(lines)).into_response()
}

/// Events as server-sent events.
pub(super) fn server_sent<T: Serialize>(
    events: impl Stream<Item = T> + Send + 'static,
) -> Response {
    // JSON has no line breaks of its own, so one `data` line holds it.
    let lines = events.map(|event| Ok::<_, Infallible>(format!("data: {}\n\n", json(&event))));
    let headers = [
        (CONTENT_TYPE, "text/event-stream"),
        (CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(lines)).into_response()
}

fn json(event: &impl Serialize) -> String {
    serde_json::to_string(event).unwrap_or_else(|error| {
        tracing::error!("an event is no JSON: {error}");
        r#"{"event":"failed","message":"an output could not be sent"}"#.to_owned()
    })
}
