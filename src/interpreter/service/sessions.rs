//! Routes of our own: sessions that are made, used, watched, interrupted and ended by name.

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
use super::error::Refusal;
use super::events::{self, Event};
use super::guard::Client;
use super::registry::{Sandbox, Wish};
use crate::interpreter::Observation;

/// What a new session is like.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NewSession {
    /// Seed of `random` and numpy.
    seed: u64,
    /// Seconds that a cell may run, at most a day [default: the service's].
    #[schemars(range(min = 1, max = 86_400))]
    cell_seconds: Option<u64>,
}

/// A session.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct SessionInfo {
    /// Its name in further requests.
    id: String,
    /// Digest of the Python environment.
    environment: String,
    /// When it was started, seconds since 1970.
    started: u64,
    /// Seconds that a cell may run.
    cell_seconds: u64,
    /// Whether a cell runs.
    busy: bool,
}

/// A cell.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Cell {
    /// Python, with IPython's magics.
    code: String,
}

/// What a cell did.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct CellResult {
    /// Number of the cell in its session, from 1.
    count: u64,
    /// What it showed.
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

/// Start a session.
pub(super) async fn create(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    body::Json(new): body::Json<NewSession>,
) -> Result<(StatusCode, Json<SessionInfo>), Refusal> {
    if new
        .cell_seconds
        .is_some_and(|seconds| !(1..=86_400).contains(&seconds))
    {
        return Err(Refusal::bad("cell_seconds: expected 1 to 86400"));
    }
    let wish = Wish {
        seed: new.seed,
        cell_seconds: new.cell_seconds,
        ..Wish::default()
    };
    let sandbox = service.registry.create(&client, wish).await?;
    Ok((StatusCode::CREATED, Json(info(&service, &sandbox))))
}

/// The client's sessions.
pub(super) async fn list(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
) -> Json<Vec<SessionInfo>> {
    let sandboxes = service.registry.all_of(&client);
    Json(
        sandboxes
            .iter()
            .map(|sandbox| info(&service, sandbox))
            .collect(),
    )
}

/// One session.
pub(super) async fn show(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<Json<SessionInfo>, Refusal> {
    let sandbox = service.registry.of(&client, &id)?;
    Ok(Json(info(&service, &sandbox)))
}

/// Run a cell and wait for its end.
pub(super) async fn execute(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    body::Json(cell): body::Json<Cell>,
) -> Result<Json<CellResult>, Refusal> {
    let sandbox = service.registry.of(&client, &id)?;
    let ran = events::wait(sandbox.kernel(None)?, cell.code).await?;
    sandbox.touch();
    Ok(Json(CellResult {
        count: ran.count,
        observation: ran.observation,
    }))
}

/// Run a cell and watch it: lines of JSON, or server-sent events where they are asked for.
pub(super) async fn stream(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body::Json(cell): body::Json<Cell>,
) -> Result<Response, Refusal> {
    let sandbox = service.registry.of(&client, &id)?;
    let steps = events::follow(sandbox.kernel(None)?, cell.code, None);
    let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    match accepts.is_some_and(|accepts| accepts.contains("text/event-stream")) {
        true => Ok(events::server_sent(steps.map(Event::from))),
        false => Ok(events::lines(steps.map(Event::from))),
    }
}

/// Interrupt the cell that runs.
pub(super) async fn interrupt(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    service.registry.of(&client, &id)?.kernel(None)?.interrupt();
    Ok(StatusCode::ACCEPTED)
}

/// End a session.
pub(super) async fn close(
    State(service): State<Arc<Service>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    let sandbox = service.registry.of(&client, &id)?;
    service.registry.close(&sandbox).await;
    Ok(StatusCode::NO_CONTENT)
}
