//! What the routes share: errors as JSON, work on other threads, sources by name.

use std::path::PathBuf;
use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use pybench_run::RunError;
use pybench_show::TrajectorySource;
use serde_json::json;

use crate::row::Row;
use crate::sources::{Opened, Sources};

/// An error as JSON.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) StatusCode, pub(crate) String);

impl From<RunError> for ApiError {
    fn from(error: RunError) -> Self {
        let status = match error {
            RunError::BadInput(_) => StatusCode::BAD_REQUEST,
            RunError::Conflict(_) => StatusCode::CONFLICT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"message": self.1}))).into_response()
    }
}

impl From<QueryRejection> for ApiError {
    fn from(error: QueryRejection) -> Self {
        Self(StatusCode::BAD_REQUEST, error.body_text())
    }
}

impl From<JsonRejection> for ApiError {
    fn from(error: JsonRejection) -> Self {
        Self(error.status(), error.body_text())
    }
}

pub(crate) fn not_found(what: impl Into<String>) -> ApiError {
    ApiError(StatusCode::NOT_FOUND, what.into())
}

/// Runs work that reads files or the index.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        let text = format!("the studio failed: {error}");
        Err(ApiError(StatusCode::INTERNAL_SERVER_ERROR, text))
    })
}

/// Opens a source, which has this name.
pub(crate) fn open(sources: &Sources, name: &str) -> Result<Arc<Opened>, ApiError> {
    let opened = sources.open(name)?;
    opened.ok_or_else(|| not_found(format!("there is no run or dataset `{name}` here")))
}

/// As [`blocking`], with a source that is open.
pub(crate) async fn with_source<T: Send + 'static>(
    sources: Arc<Sources>,
    name: String,
    work: impl FnOnce(&Opened) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    blocking(move || {
        let opened = open(&sources, &name)?;
        work(&opened)
    })
    .await
}

/// The trajectory with this number: its line in the list, and everything that is recorded of it, as JSON.
pub(crate) fn record(opened: &Opened, number: &str) -> Result<(Row, String), ApiError> {
    let found = match number.parse() {
        Ok(number) => opened.index.record(number)?,
        Err(_) => None,
    };
    found.ok_or_else(|| no_trajectory(number))
}

pub(crate) fn no_trajectory(number: &str) -> ApiError {
    not_found(format!("there is no trajectory `{number}`"))
}

/// The folder of the run with this name.
pub(crate) fn run_folder(sources: &Sources, name: &str) -> Result<PathBuf, ApiError> {
    match sources.find(name) {
        Some(TrajectorySource::Run(folder)) => Ok(folder),
        Some(TrajectorySource::Dataset(_) | TrajectorySource::InspectLog(_)) => {
            let text = format!("`{name}` is no run; open the run that it was made from");
            Err(ApiError(StatusCode::BAD_REQUEST, text))
        }
        None => Err(not_found(format!("there is no run `{name}` here"))),
    }
}
