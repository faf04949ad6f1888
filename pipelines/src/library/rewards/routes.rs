//! The routes: `POST /v1/rewards` scores a workspace, `GET /v1/health` says that the service is there.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONNECTION, CONTENT_LENGTH, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use pybench::grade::{Candidate, CheckError};
use pybench::id::Digest;
use pybench::run::{ContentStore, RunError};
use pybench::task::Task;
use pybench::trajectory::{Finding, Outcome};
use serde::Serialize;
use tokio::sync::{Semaphore, TryAcquireError};

use super::request::{Request, Wrong};
use crate::library::MakeError;
use crate::library::audit::Bench;

/// How long a body may take to come.
const PATIENCE: Duration = Duration::from_secs(120);

/// What all requests share.
pub(super) struct Service {
    bench: Bench,
    /// Requests that are read, waiting or scored: they hold a body in memory.
    places: Semaphore,
    /// Requests that are scored.
    turns: Semaphore,
    /// Largest workspace, bytes.
    largest: usize,
}

/// What is answered.
#[derive(Debug, Serialize)]
struct Verdict {
    /// The task's id.
    task: Digest,
    /// 1 where every check holds, else 0.
    reward: f64,
    /// The share of findings that pass, 0 to 1.
    share: f64,
    /// One for each output asked for and each check.
    findings: Vec<Finding>,
}

/// A request that was refused or failed.
#[derive(Debug)]
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(status, message) = self;
        let body = serde_json::json!({"code": status.as_u16(), "message": message});
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        match status.as_u16() {
            429 => headers.insert(RETRY_AFTER, HeaderValue::from_static("1")),
            // The rest of such a body is not read: nothing else can come over this connection.
            408 | 413 => headers.insert(CONNECTION, HeaderValue::from_static("close")),
            _ => None,
        };
        response
    }
}

impl From<Wrong> for Refusal {
    fn from(wrong: Wrong) -> Self {
        let status = match wrong {
            Wrong::Shape(_) => StatusCode::BAD_REQUEST,
            Wrong::Large(_) => StatusCode::PAYLOAD_TOO_LARGE,
        };
        Self(status, wrong.to_string())
    }
}

impl From<MakeError> for Refusal {
    fn from(error: MakeError) -> Self {
        match error {
            MakeError::Unknown(_) | MakeError::Unfit(_) => {
                Self(StatusCode::NOT_FOUND, error.to_string())
            }
            error => Self::ours(&error),
        }
    }
}

impl From<RunError> for Refusal {
    fn from(error: RunError) -> Self {
        Self::ours(&error)
    }
}

impl From<CheckError> for Refusal {
    fn from(error: CheckError) -> Self {
        Self::ours(&error)
    }
}

impl Refusal {
    /// No verdict. The text may name what the asker must not learn: it is for the log.
    fn ours(error: &dyn std::error::Error) -> Self {
        tracing::error!("{error}");
        let text = "this workspace could not be scored, which says nothing of it; the service's log says why";
        Self(StatusCode::INTERNAL_SERVER_ERROR, text.to_owned())
    }
}

impl Service {
    /// Scores `jobs` workspaces at a time, at least one, while `waiting` more wait.
    pub(super) fn new(bench: Bench, jobs: usize, waiting: usize, largest: usize) -> Self {
        Self {
            bench,
            places: Semaphore::new(jobs.max(1) + waiting),
            turns: Semaphore::new(jobs.max(1)),
            largest,
        }
    }
}

/// The routes.
pub(super) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/v1/rewards", post(reward))
        .route("/v1/health", get(async || StatusCode::NO_CONTENT))
        .fallback(async || Refusal(StatusCode::NOT_FOUND, "this route was not found".to_owned()))
        .with_state(service)
}

async fn reward(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Verdict>, Refusal> {
    let _place = service.places.try_acquire().map_err(full)?;
    let bytes = read(&headers, body, Request::most_bytes(service.largest)).await?;
    let _turn = service.turns.acquire().await.map_err(closed)?;
    let shared = service.clone();
    let prepare = move || Scored::prepare(&shared, &bytes);
    let scored = tokio::task::spawn_blocking(prepare).await;
    let scored = scored.map_err(|error| Refusal::ours(&error))??;
    let checker = &service.bench.checker;
    let findings = checker.check(&scored.task, &scored.store, &scored.candidate);
    Ok(Json(verdict(scored.task.id.clone(), findings.await?)))
}

fn full(_: TryAcquireError) -> Refusal {
    let text = "as many workspaces wait as may; come back later";
    Refusal(StatusCode::TOO_MANY_REQUESTS, text.to_owned())
}

fn closed(error: tokio::sync::AcquireError) -> Refusal {
    Refusal::ours(&error)
}

/// A body within bounds of size and time.
async fn read(headers: &HeaderMap, body: Body, most: usize) -> Result<axum::body::Bytes, Refusal> {
    let large = || {
        let text = format!("the body is cut off or has more than {most} bytes");
        Refusal(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    if announced
        .and_then(|length| length.parse::<usize>().ok())
        .is_some_and(|n| n > most)
    {
        return Err(large());
    }
    match tokio::time::timeout(PATIENCE, axum::body::to_bytes(body, most)).await {
        Ok(bytes) => bytes.map_err(|_| large()),
        Err(_) => {
            let text = "the body did not come in time".to_owned();
            Err(Refusal(StatusCode::REQUEST_TIMEOUT, text))
        }
    }
}

/// A task made anew and what is to be scored, in a folder that vanishes with them.
struct Scored {
    task: Task,
    candidate: Candidate,
    store: ContentStore,
    _folder: tempfile::TempDir,
}

impl Scored {
    fn prepare(service: &Service, bytes: &[u8]) -> Result<Self, Refusal> {
        let request = Request::parse(bytes, service.largest)?;
        let bench = &service.bench;
        let (store, folder) = bench.fixtures.scratch()?;
        let task = request
            .task
            .task(&bench.library, &bench.fixtures.files, &store)?;
        if request.id.is_some_and(|id| id != task.id) {
            let text = "the library or the files here make another task of this template, language and seed";
            return Err(Refusal(StatusCode::CONFLICT, text.to_owned()));
        }
        let mut outputs = Vec::new();
        for (path, bytes) in &request.files {
            outputs.push((path.clone(), store.path(&store.put(bytes)?)));
        }
        let candidate = Candidate {
            answer: request.answer,
            outputs,
            claims: request.claims,
        };
        Ok(Self {
            task,
            candidate,
            store,
            _folder: folder,
        })
    }
}

fn verdict(task: Digest, findings: Vec<Finding>) -> Verdict {
    let passed = findings
        .iter()
        .filter(|found| found.outcome == Outcome::Pass);
    let share = passed.count() as f64 / findings.len().max(1) as f64;
    let all = share == 1.0 && !findings.is_empty();
    Verdict {
        task,
        reward: f64::from(u8::from(all)),
        share,
        findings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(outcome: Outcome) -> Finding {
        Finding {
            filter: "check".to_owned(),
            subject: String::new(),
            outcome,
            detail: String::new(),
        }
    }

    #[test]
    fn only_all_checks_are_a_reward() {
        let judge = |outcomes: &[Outcome]| {
            let findings = outcomes.iter().copied().map(finding).collect();
            let verdict = verdict(Digest::of_bytes(b""), findings);
            (verdict.reward, verdict.share)
        };
        assert_eq!(judge(&[Outcome::Pass, Outcome::Pass]), (1.0, 1.0));
        assert_eq!(judge(&[Outcome::Pass, Outcome::Unproven]), (0.0, 0.5));
        assert_eq!(judge(&[Outcome::Fail]), (0.0, 0.0));
        assert_eq!(judge(&[]), (0.0, 0.0));
    }
}
