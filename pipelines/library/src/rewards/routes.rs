//! The HTTP routes: `POST /v1/rewards` scores a workspace, `GET /v1/health` is a health check.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONNECTION, CONTENT_LENGTH, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use pybench_checks::{Candidate, CheckError};
use pybench_run::{ContentStore, RunError};
use pybench_types::id::Digest;
use pybench_types::task::Task;
use pybench_types::trajectory::{Finding, Outcome};
use serde::Serialize;
use tokio::sync::{Semaphore, TryAcquireError};

use super::request::{Request, RequestError};
use crate::MakeError;
use crate::audit::AuditEnv;
use crate::export::StoredTasks;

/// Time limit for receiving a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(120);

/// The state that all requests share.
pub(super) struct Service {
    env: AuditEnv,
    stored: StoredTasks,
    /// Limits the requests that are read, queued or scored, because each holds its body in memory.
    admission: Semaphore,
    /// Limits the requests that are scored in parallel.
    workers: Semaphore,
    /// Largest workspace, in bytes.
    largest: usize,
    /// Whether findings say what was expected and what was found.
    details: bool,
}

/// The body of a successful response.
#[derive(Debug, Serialize)]
struct RewardResponse {
    /// The task id.
    task: Digest,
    /// 1 if every check passes, otherwise 0.
    reward: f64,
    /// The share of findings that pass, 0 to 1.
    share: f64,
    /// One for each requested output and each check.
    findings: Vec<Finding>,
}

/// The status and message of a rejected or failed request.
#[derive(Debug)]
struct ApiError(StatusCode, String);

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self(status, message) = self;
        let body = serde_json::json!({"code": status.as_u16(), "message": message});
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        match status.as_u16() {
            429 => headers.insert(RETRY_AFTER, HeaderValue::from_static("1")),
            // The rest of the body is not read, so the connection cannot be reused.
            408 | 413 => headers.insert(CONNECTION, HeaderValue::from_static("close")),
            _ => None,
        };
        response
    }
}

impl From<RequestError> for ApiError {
    fn from(wrong: RequestError) -> Self {
        let status = match wrong {
            RequestError::Invalid(_) => StatusCode::BAD_REQUEST,
            RequestError::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        };
        Self(status, wrong.to_string())
    }
}

impl From<MakeError> for ApiError {
    fn from(error: MakeError) -> Self {
        match error {
            MakeError::Unknown(_) | MakeError::Unfit(_) => {
                Self(StatusCode::NOT_FOUND, error.to_string())
            }
            error => Self::internal(&error),
        }
    }
}

impl From<RunError> for ApiError {
    fn from(error: RunError) -> Self {
        Self::internal(&error)
    }
}

impl From<CheckError> for ApiError {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Unfit(_) => Self(StatusCode::NOT_FOUND, error.to_string()),
            error => Self::internal(&error),
        }
    }
}

impl ApiError {
    /// A server error. Its text may contain parts of the task that the client must not see, so it is only logged.
    fn internal(error: &dyn std::error::Error) -> Self {
        tracing::error!("{error}");
        let text = "the workspace could not be scored because of a server error; the server's log has the reason";
        Self(StatusCode::INTERNAL_SERVER_ERROR, text.to_owned())
    }
}

impl Service {
    /// The task that a request names.
    fn task(&self, request: &Request, store: &ContentStore) -> Result<Task, ApiError> {
        let Some(key) = &request.task else {
            let stored = request.id.as_ref().map(|id| self.stored.task(id, store));
            return stored.transpose()?.flatten().ok_or_else(|| {
                let text = "no such task: without `task`, `id` must be that of a task in the folder of --tasks";
                ApiError(StatusCode::NOT_FOUND, text.to_owned())
            });
        };
        let task = key.task(&self.env.library, &self.env.fixtures.files, store)?;
        if request.id.as_ref().is_some_and(|id| *id != task.id) {
            let text = "wrong task id: this server's library or files give another task for this template, language \
                        and seed";
            return Err(ApiError(StatusCode::CONFLICT, text.to_owned()));
        }
        Ok(task)
    }

    /// Scores `jobs` workspaces in parallel (at least one), with a queue of `waiting` more.
    pub(super) fn new(
        env: AuditEnv,
        stored: StoredTasks,
        jobs: usize,
        waiting: usize,
        largest: usize,
        details: bool,
    ) -> Self {
        Self {
            env,
            stored,
            admission: Semaphore::new(jobs.max(1) + waiting),
            workers: Semaphore::new(jobs.max(1)),
            largest,
            details,
        }
    }
}

pub(super) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route("/v1/rewards", post(reward))
        .route("/v1/health", get(async || StatusCode::NO_CONTENT))
        .fallback(async || ApiError(StatusCode::NOT_FOUND, "no such route".to_owned()))
        .with_state(service)
}

async fn reward(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<RewardResponse>, ApiError> {
    let _admitted = service.admission.try_acquire().map_err(full)?;
    let bytes = read(&headers, body, Request::max_body(service.largest)).await?;
    let _worker = service.workers.acquire().await.map_err(closed)?;
    let shared = service.clone();
    let prepare = move || Submission::prepare(&shared, &bytes);
    let scored = tokio::task::spawn_blocking(prepare).await;
    let scored = scored.map_err(|error| ApiError::internal(&error))??;
    let checker = &service.env.checker;
    let findings = checker.check(&scored.task, &scored.store, &scored.candidate);
    let mut findings = findings.await?;
    if !service.details {
        withhold_details(&mut findings);
    }
    Ok(Json(verdict(scored.task.id.clone(), findings)))
}

fn full(_: TryAcquireError) -> ApiError {
    let text = "the queue is full; try again later";
    ApiError(StatusCode::TOO_MANY_REQUESTS, text.to_owned())
}

fn closed(error: tokio::sync::AcquireError) -> ApiError {
    ApiError::internal(&error)
}

/// Reads a body of at most `limit` bytes within the time limit.
async fn read(
    headers: &HeaderMap,
    body: Body,
    limit: usize,
) -> Result<axum::body::Bytes, ApiError> {
    let large = || {
        let text = format!("the body is incomplete or has more than {limit} bytes");
        ApiError(StatusCode::PAYLOAD_TOO_LARGE, text)
    };
    let announced = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    if announced
        .and_then(|length| length.parse::<usize>().ok())
        .is_some_and(|n| n > limit)
    {
        return Err(large());
    }
    match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, limit)).await {
        Ok(bytes) => bytes.map_err(|_| large()),
        Err(_) => {
            let text = "the body did not arrive in time".to_owned();
            Err(ApiError(StatusCode::REQUEST_TIMEOUT, text))
        }
    }
}

/// A regenerated task and the candidate to score, with a temporary store.
struct Submission {
    task: Task,
    candidate: Candidate,
    store: ContentStore,
    _folder: tempfile::TempDir,
}

impl Submission {
    fn prepare(service: &Service, bytes: &[u8]) -> Result<Self, ApiError> {
        let request = Request::parse(bytes, service.largest)?;
        let env = &service.env;
        let (store, folder) = env.fixtures.scratch()?;
        let task = service.task(&request, &store)?;
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

/// The details of failed checks hold expected values, which a trainer may pass on to the model.
fn withhold_details(findings: &mut [Finding]) {
    for finding in findings {
        if finding.outcome != Outcome::Pass {
            finding.detail = "withheld; see --details".to_owned();
            finding.mismatch = None;
        }
    }
}

fn verdict(task: Digest, findings: Vec<Finding>) -> RewardResponse {
    let passed = findings
        .iter()
        .filter(|found| found.outcome == Outcome::Pass);
    let share = passed.count() as f64 / findings.len().max(1) as f64;
    let all = share == 1.0 && !findings.is_empty();
    RewardResponse {
        task,
        reward: f64::from(u8::from(all)),
        share,
        findings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pybench_types::trajectory::Mismatch;

    fn finding(outcome: Outcome) -> Finding {
        Finding {
            filter: "check".to_owned(),
            subject: String::new(),
            outcome,
            detail: String::new(),
            mismatch: None,
        }
    }

    #[test]
    fn expected_values_are_withheld() {
        let mut findings = [Outcome::Pass, Outcome::Fail, Outcome::Unproven].map(finding);
        for finding in &mut findings {
            finding.detail = "expected 42".to_owned();
            finding.mismatch = Some(Mismatch {
                place: String::new(),
                expected: "42".to_owned(),
                found: "41".to_owned(),
            });
        }
        withhold_details(&mut findings);
        let told = findings.map(|f| (f.detail.contains("42"), f.mismatch.is_some()));
        assert_eq!(told, [(true, true), (false, false), (false, false)]);
    }

    #[test]
    fn the_reward_needs_all_checks_to_pass() {
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
