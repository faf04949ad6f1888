//! Our own routes: create, list, use, stream, interrupt and close sessions.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::header::ACCEPT;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Service;
use super::body;
use super::error::ApiError;
use super::events::{self, Event};
use super::guard::Client;
use super::registry::{Sandbox, SandboxSpec};
use pybench_types::observation::Observation;

/// Parameters of a new session.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NewSession {
    /// Seed of Python's `random` and of numpy [default: a new one].
    seed: Option<u64>,
    /// Time limit of a cell, seconds, at most a day [default: the service's].
    #[schemars(range(min = 1, max = 86_400))]
    cell_seconds: Option<u64>,
}

/// A session.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SessionInfo {
    /// ID of the session for further requests.
    id: String,
    /// Digest of the Python environment.
    environment: String,
    /// When it was started, seconds since 1970.
    started: u64,
    /// Time limit of a cell, seconds.
    cell_seconds: u64,
    /// Whether a cell is running.
    busy: bool,
}

/// A cell to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Cell {
    /// Python code; IPython magics are supported.
    code: String,
}

/// The result of a cell.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CellResult {
    /// Number of the cell in its session, from 1.
    count: u64,
    /// Outputs and errors of the cell.
    #[serde(flatten)]
    observation: Observation,
}

fn info(service: &Service, sandbox: &Sandbox) -> SessionInfo {
    let since = sandbox.started.duration_since(UNIX_EPOCH);
    SessionInfo {
        id: sandbox.id.clone(),
        environment: service.registry.environment().to_owned(),
        started: since.map_or(0, |since| since.as_secs()),
        cell_seconds: sandbox.limits.cell_seconds,
        busy: sandbox.kernels().iter().any(|kernel| kernel.is_busy()),
    }
}

/// Starts a session.
pub(super) async fn create(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    body::Json(new): body::Json<NewSession>,
) -> Result<(StatusCode, Json<SessionInfo>), ApiError> {
    if new
        .cell_seconds
        .is_some_and(|seconds| !(1..=86_400).contains(&seconds))
    {
        return Err(ApiError::bad(
            "cell_seconds: expected a number from 1 to 86400",
        ));
    }
    let spec = SandboxSpec {
        seed: new.seed,
        cell_seconds: new.cell_seconds,
        ..SandboxSpec::default()
    };
    let sandbox = service.registry.create(&client, spec).await?;
    Ok((StatusCode::CREATED, Json(info(&service, &sandbox))))
}

/// Lists the client's sessions.
pub(super) async fn list(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
) -> Json<Vec<SessionInfo>> {
    let sandboxes = service.registry.client_sandboxes(&client);
    Json(
        sandboxes
            .iter()
            .map(|sandbox| info(&service, sandbox))
            .collect(),
    )
}

/// Describes a session.
pub(super) async fn show(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<Json<SessionInfo>, ApiError> {
    let sandbox = service.registry.client_sandbox(&client, &id)?;
    Ok(Json(info(&service, &sandbox)))
}

/// Runs a cell and waits for its end.
pub(super) async fn execute(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    body::Json(cell): body::Json<Cell>,
) -> Result<Json<CellResult>, ApiError> {
    let sandbox = service.registry.client_sandbox(&client, &id)?;
    let finished = events::wait(sandbox.kernel(None)?, cell.code).await?;
    sandbox.touch();
    Ok(Json(CellResult {
        count: finished.count,
        observation: finished.observation,
    }))
}

/// Runs a cell and streams its events: as lines of JSON, or as server-sent events if requested.
pub(super) async fn stream(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body::Json(cell): body::Json<Cell>,
) -> Result<Response, ApiError> {
    let sandbox = service.registry.client_sandbox(&client, &id)?;
    let steps = events::follow(sandbox.kernel(None)?, cell.code, None);
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    match accepts.is_some_and(|accepts| accepts.contains("text/event-stream")) {
        true => Ok(events::server_sent(steps.map(Event::from))),
        false => Ok(events::lines(steps.map(Event::from))),
    }
}

/// Interrupts the running cell.
pub(super) async fn interrupt(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    service
        .registry
        .client_sandbox(&client, &id)?
        .kernel(None)?
        .interrupt();
    Ok(StatusCode::ACCEPTED)
}

/// Ends a session.
pub(super) async fn close(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let sandbox = service.registry.client_sandbox(&client, &id)?;
    service.registry.close(&sandbox).await;
    Ok(StatusCode::NO_CONTENT)
}
