//! The routes for edits.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, FromRef, Path, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use pybench_run::RunError;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::continuation::ContinueRequest;
use super::fork::{Fork, ForkView};
use super::forks::{Forks, MAX_FORKS};
use super::models::AgentList;
use super::plan::ForkRequest;
use super::written::WrittenTurn;
use crate::handlers::{ApiError, blocking, not_found, open, record, with_source};
use crate::record::Record;
use crate::row::Row;
use crate::saved_edits::{self, EditInfo, SaveRequest};
use crate::sources::Sources;
use crate::view::View;

/// Maximum number of bytes of a request's body.
const MAX_BODY: usize = 1 << 20;

/// What the routes use.
#[derive(Clone)]
pub(crate) struct Studio {
    pub(crate) sources: Arc<Sources>,
    pub(crate) forks: Arc<Forks>,
}

impl FromRef<Studio> for Arc<Sources> {
    fn from_ref(studio: &Studio) -> Self {
        studio.sources.clone()
    }
}

impl FromRef<Studio> for Arc<Forks> {
    fn from_ref(studio: &Studio) -> Self {
        studio.forks.clone()
    }
}

/// The routes for edits.
pub(crate) fn router() -> Router<Studio> {
    Router::new()
        .route("/api/data/{name}/edits", get(edits))
        .route("/api/data/{name}/preferences", get(preferences))
        .route("/api/data/{name}/{number}/edits/{id}", get(edit))
        .route("/api/data/{name}/{number}/forks", post(begin))
        .route("/api/forks/{id}", get(view).delete(close))
        .route("/api/forks/{id}/turns", post(send))
        .route("/api/forks/{id}/back", post(back))
        .route("/api/forks/{id}/continue", post(continue_by))
        .route("/api/forks/{id}/stop", post(stop))
        .route("/api/agents", get(agents))
        .route("/api/forks/{id}/save", post(save))
        .layer(DefaultBodyLimit::max(MAX_BODY))
}

/// Begins an edit: replays the turns before the edited one.
async fn begin(
    State(studio): State<Studio>,
    Path((name, number)): Path<(String, String)>,
    request: Result<Json<ForkRequest>, JsonRejection>,
) -> Result<Json<ForkView>, ApiError> {
    let Json(request) = request?;
    let (forks, of_source) = (studio.forks.clone(), name.clone());
    let (plan, request) = with_source(studio.sources, of_source, move |opened| {
        let (row, json) = record(opened, &number)?;
        // The numbers of a run that goes on may change.
        if row.id != request.trajectory {
            let text = "the list has changed: this number is another trajectory now; reload the page and edit again";
            return Err(ApiError(StatusCode::CONFLICT, text.to_owned()));
        }
        let record = serde_json::from_str(&json).map_err(RunError::from)?;
        Ok((forks.plan(opened, record, &request)?, request))
    })
    .await?;
    let forks = studio.forks;
    // The turns that were not saved are read and written.
    let fork = blocking(move || Ok(forks.begin(name, plan, request)?)).await?;
    let fork = fork.ok_or_else(|| {
        let text = format!(
            "{MAX_FORKS} edits are open, as many as can be; leave one of their pages and try again"
        );
        ApiError(StatusCode::TOO_MANY_REQUESTS, text)
    })?;
    Ok(Json(fork.view()))
}

fn find(forks: &Forks, id: &str) -> Result<Arc<Fork>, ApiError> {
    let missing = "this edit is not open: its page was left, or the studio was started again; begin it again with its turns";
    forks.get(id).ok_or_else(|| not_found(missing))
}

async fn view(
    State(forks): State<Arc<Forks>>,
    Path(id): Path<String>,
) -> Result<Json<ForkView>, ApiError> {
    Ok(Json(find(&forks, &id)?.view()))
}

async fn close(State(forks): State<Arc<Forks>>, Path(id): Path<String>) -> Json<Value> {
    forks.close(&id);
    Json(json!({}))
}

/// Turns for an edit.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Turns {
    /// Number of turns that the sender has seen.
    after: usize,
    turns: Vec<WrittenTurn>,
}

async fn send(
    State(forks): State<Arc<Forks>>,
    Path(id): Path<String>,
    request: Result<Json<Turns>, JsonRejection>,
) -> Result<Json<ForkView>, ApiError> {
    let Json(request) = request?;
    let fork = find(&forks, &id)?;
    // The turns are written to the disk.
    blocking(move || {
        fork.send(request.after, request.turns)?;
        Ok(Json(fork.view()))
    })
    .await
}

/// How far an edit goes back.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Back {
    /// Number of turns that it keeps.
    keep: usize,
}

/// Takes the last turns of an edit back.
async fn back(
    State(forks): State<Arc<Forks>>,
    Path(id): Path<String>,
    request: Result<Json<Back>, JsonRejection>,
) -> Result<Json<ForkView>, ApiError> {
    let Json(request) = request?;
    let fork = find(&forks, &id)?;
    // The turns are written to the disk.
    blocking(move || {
        fork.back(request.keep)?;
        Ok(Json(fork.view()))
    })
    .await
}

/// The agents that can continue an edit.
async fn agents(State(forks): State<Arc<Forks>>) -> Result<Json<AgentList>, ApiError> {
    blocking(move || Ok(Json(forks.models().list()))).await
}

/// Lets a model write the next turns.
async fn continue_by(
    State(forks): State<Arc<Forks>>,
    Path(id): Path<String>,
    request: Result<Json<ContinueRequest>, JsonRejection>,
) -> Result<Json<ForkView>, ApiError> {
    let Json(request) = request?;
    let fork = find(&forks, &id)?;
    forks.continue_by(&fork, &request).await?;
    Ok(Json(fork.view()))
}

/// Stops the model that writes turns.
async fn stop(
    State(forks): State<Arc<Forks>>,
    Path(id): Path<String>,
) -> Result<Json<ForkView>, ApiError> {
    let fork = find(&forks, &id)?;
    fork.stop();
    Ok(Json(fork.view()))
}

/// Saves an edit. When this answers, it is on the disk.
async fn save(
    State(studio): State<Studio>,
    Path(id): Path<String>,
    request: Result<Json<SaveRequest>, JsonRejection>,
) -> Result<Json<ForkView>, ApiError> {
    let Json(request) = request?;
    let fork = find(&studio.forks, &id)?;
    blocking(move || {
        let opened = open(&studio.sources, fork.source())?;
        fork.save(&opened, request)?;
        Ok(Json(fork.view()))
    })
    .await
}

async fn edits(
    State(sources): State<Arc<Sources>>,
    Path(name): Path<String>,
) -> Result<Json<Vec<EditInfo>>, ApiError> {
    with_source(sources, name, |opened| {
        Ok(Json(saved_edits::all_edits(opened.run()?)?))
    })
    .await
}

/// An edited trajectory as the page of a trajectory shows it.
async fn edit(
    State(sources): State<Arc<Sources>>,
    Path((name, number, id)): Path<(String, String, String)>,
) -> Result<Json<View>, ApiError> {
    with_source(sources, name, move |opened| {
        let (recorded, json) = record(opened, &number)?;
        let edit = saved_edits::edit(opened.run()?, &recorded.id, &id)?;
        let edit = edit.ok_or_else(|| not_found(format!("there is no edit `{id}`")))?;
        let task = match serde_json::from_str(&json).map_err(RunError::from)? {
            Record::Run { task, .. } => task,
            Record::Evaluation { .. } | Record::Dataset { .. } | Record::Log { .. } => None,
        };
        let record = Record::Run {
            trajectory: Box::new(edit.trajectory),
            task,
            verdict: Some(edit.verdict),
        };
        let mut view = View::new(Row::new(recorded.number, &record), record);
        view.mark_missing(|id| opened.has(id));
        Ok(Json(view))
    })
    .await
}

/// The preference pairs of the run, as a file.
async fn preferences(
    State(sources): State<Arc<Sources>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    with_source(sources, name, |opened| {
        let text = saved_edits::preferences(opened.run()?)?;
        let headers = [
            (CONTENT_TYPE, "application/jsonl"),
            (
                CONTENT_DISPOSITION,
                "attachment; filename=\"human-preferences.jsonl\"",
            ),
        ];
        Ok((headers, text).into_response())
    })
    .await
}
