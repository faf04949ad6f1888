//! What goes on, as server-sent events: the list of runs, how far one of them is, and whether a list has changed.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Path, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures::stream::{Stream, StreamExt as _};
use serde::Serialize;

use crate::edit::routes::Studio;
use crate::handlers::{ApiError, blocking, open, run_folder};
use crate::index::ListState;
use crate::sources::Sources;
use crate::status::{RunStatus, status};

/// The list of runs has this name among what is followed; that of a run has no slash.
const LIST: &str = "/";
/// Span over which the throughput is measured.
const SPAN: Duration = Duration::from_secs(60);
/// Shorter spans say little.
const MIN_SPAN: Duration = Duration::from_secs(5);

pub(crate) fn router() -> Router<Studio> {
    Router::new()
        .route("/api/events", get(follow_list))
        .route("/api/data/{name}/status", get(show))
        .route("/api/data/{name}/events", get(follow))
        .route("/api/data/{name}/changes", get(follow_changes))
}

async fn show(
    State(sources): State<Arc<Sources>>,
    Path(name): Path<String>,
) -> Result<Json<RunStatus>, ApiError> {
    blocking(move || {
        let folder = run_folder(&sources, &name)?;
        Ok(Json(status(&name, &folder)))
    })
    .await
}

/// The list of runs, now and whenever it has changed.
async fn follow_list(State(sources): State<Arc<Sources>>) -> Response {
    let reader = sources.clone();
    let lists = sources
        .watchers()
        .follow(LIST, move || json(&reader.list()));
    server_sent(lists)
}

/// How far a run is, now and whenever that has changed.
async fn follow(
    State(sources): State<Arc<Sources>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let (of, found) = (sources.clone(), name.clone());
    let folder = blocking(move || run_folder(&of, &found)).await?;
    let read = reader(name.clone(), folder);
    Ok(server_sent(sources.watchers().follow(&name, read)))
}

fn reader(name: String, folder: PathBuf) -> impl FnMut() -> String + Send + 'static {
    let mut last_minute = LastMinute::default();
    move || {
        let mut status = status(&name, &folder);
        last_minute.add(&mut status, Instant::now());
        json(&status)
    }
}

/// The version of a source's list, now and whenever it has changed. While it is followed, the list is made again when its files
/// change.
async fn follow_changes(
    State(sources): State<Arc<Sources>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let (of, found) = (sources.clone(), name.clone());
    blocking(move || open(&of, &found)).await?;
    let followed = format!("changes/{name}");
    let reader = sources.clone();
    let states = sources
        .watchers()
        .follow(&followed, move || json(&list_state(&reader, &name)));
    Ok(server_sent(states))
}

/// A source that cannot be opened any more has another state; the answer to a request for its list says why.
fn list_state(sources: &Sources, name: &str) -> ListState {
    match open(sources, name) {
        Ok(opened) => sources.list_state(name, &opened),
        Err(ApiError(_, problem)) => ListState {
            version: problem,
            newer: None,
        },
    }
}

/// What is sent as an event.
pub(crate) fn json(of: &impl Serialize) -> String {
    serde_json::to_string(of).unwrap_or_else(|error| {
        tracing::error!("an event cannot be written: {error}");
        String::new()
    })
}

/// Texts as server-sent events.
pub(crate) fn server_sent(texts: impl Stream<Item = Arc<str>> + Send + 'static) -> Response {
    let events = texts.map(|text| Ok::<_, Infallible>(Event::default().data(&*text)));
    // Without an answer to write, a browser that has left would not be noticed everywhere.
    let events = Sse::new(events).keep_alive(KeepAlive::default());
    events.into_response()
}

/// Numbers of units that had ended, by stage, at moments of the last minute.
#[derive(Default)]
struct LastMinute(VecDeque<(Instant, BTreeMap<String, u64>)>);

impl LastMinute {
    /// Adds the present numbers, and writes the throughput into `status` while a process works on the run.
    fn add(&mut self, status: &mut RunStatus, now: Instant) {
        let ended = |done: u64, failed: u64| done + failed;
        let stages = status.stages.iter();
        let present = stages.map(|stage| (stage.stage.clone(), ended(stage.done, stage.failed)));
        self.0.push_back((now, present.collect()));
        // One of them is at least as old as the span.
        while self.0.get(1).is_some_and(|(at, _)| now - *at >= SPAN) {
            self.0.pop_front();
        }
        let Some((since, before)) = self.0.front() else {
            return;
        };
        let span = now - *since;
        if status.info.state != "running" || span < MIN_SPAN {
            return;
        }
        for stage in &mut status.stages {
            let Some(before) = before.get(&stage.stage) else {
                continue;
            };
            let units = ended(stage.done, stage.failed).saturating_sub(*before);
            let per_minute = units as f64 * 60.0 / span.as_secs_f64();
            // Without more digits, an idle minute sends nothing.
            stage.last_minute = Some((per_minute * 10.0).round() / 10.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runs::SourceInfo;
    use crate::status::StageView;

    fn at(done: u64, state: &str) -> RunStatus {
        let stage = StageView {
            stage: "rollout".to_owned(),
            done,
            ..StageView::default()
        };
        RunStatus {
            info: SourceInfo {
                state: state.to_owned(),
                ..SourceInfo::default()
            },
            stages: vec![stage],
            ..RunStatus::default()
        }
    }

    #[test]
    fn the_throughput_is_that_of_the_last_minute() {
        let (mut minute, start) = (LastMinute::default(), Instant::now());
        let mut measure = |seconds: u64, done: u64, state: &str| {
            let mut status = at(done, state);
            minute.add(&mut status, start + Duration::from_secs(seconds));
            status.stages[0].last_minute
        };
        assert_eq!(measure(0, 0, "running"), None);
        assert_eq!(measure(1, 1, "running"), None);
        assert_eq!(measure(30, 10, "running"), Some(20.0));
        // What is older than a minute no longer counts.
        assert_eq!(measure(90, 40, "running"), Some(30.0));
        assert_eq!(measure(150, 40, "running"), Some(0.0));
        assert_eq!(measure(151, 41, "finished"), None);
    }
}
