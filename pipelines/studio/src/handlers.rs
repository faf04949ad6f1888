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

use crate::index::{Index, IndexProgress};
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
    on_other_thread(work).await
}

/// As [`blocking`], for work that no route does by itself.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RunError> + Send + 'static,
) -> Result<T, RunError> {
    on_other_thread(work).await
}

async fn on_other_thread<T: Send + 'static, E: From<RunError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        let text = format!("the studio failed: {error}");
        Err(RunError::Internal(text).into())
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

/// The index of a source with all of its trajectories.
///
/// # Errors
/// 503 while it is being made; 400 if the source cannot be read to its end, now or when it was last read.
pub(crate) fn whole<'a>(opened: &'a Opened, name: &str) -> Result<&'a Index, ApiError> {
    match opened.index.progress() {
        None => match opened.outdated() {
            problem if problem.is_empty() => Ok(&opened.index),
            problem => Err(ApiError(
                StatusCode::BAD_REQUEST,
                format!("the trajectories of `{name}` as they are now cannot be read: {problem}"),
            )),
        },
        Some(IndexProgress { rows, problem }) if problem.is_empty() => Err(not_indexed(format!(
            "`{name}` is being indexed: {rows} trajectories so far, and this needs all of them"
        ))),
        Some(IndexProgress { rows, problem }) => Err(ApiError(
            StatusCode::BAD_REQUEST,
            format!(
                "only the first {rows} trajectories of `{name}` can be read, and this needs all of them: {problem}"
            ),
        )),
    }
}

/// The trajectory with this number: its line in the list, and everything that is recorded of it, as JSON.
pub(crate) fn record(opened: &Opened, number: &str) -> Result<(Row, String), ApiError> {
    found(opened, number, |number| opened.index.record(number))
}

/// What `read` finds for the trajectory with this number.
///
/// # Errors
/// 503 if it is not indexed yet; 404 if there is no such number.
pub(crate) fn found<T>(
    opened: &Opened,
    number: &str,
    read: impl FnOnce(u64) -> Result<Option<T>, RunError>,
) -> Result<T, ApiError> {
    // Before it is read, since it may be written in between.
    let progress = opened.index.progress();
    let parsed = number.parse::<u64>().map_err(|_| absent(number, None))?;
    let progress = progress.filter(|progress| parsed > progress.rows);
    let found = read(parsed)?;
    found.ok_or_else(|| absent(number, progress))
}

/// Why a number has no trajectory in an index that is so far.
fn absent(number: &str, progress: Option<IndexProgress>) -> ApiError {
    match progress {
        None => not_found(format!("there is no trajectory `{number}`")),
        Some(IndexProgress { rows, problem }) if problem.is_empty() => not_indexed(format!(
            "trajectory {number} is not indexed yet: {rows} trajectories are indexed so far"
        )),
        Some(IndexProgress { rows, problem }) => not_found(format!(
            "trajectory {number} cannot be shown, only the first {rows}: {problem}"
        )),
    }
}

/// The answer may be there when the index has grown.
fn not_indexed(what: String) -> ApiError {
    ApiError(StatusCode::SERVICE_UNAVAILABLE, what)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_missing_for_good_only_if_it_will_not_be_indexed() {
        let of = |progress: Option<(u64, &str)>| {
            let progress = progress.map(|(rows, problem)| IndexProgress {
                rows,
                problem: problem.to_owned(),
            });
            let ApiError(status, text) = absent("9", progress);
            (status, text)
        };
        let (status, text) = of(Some((4, "")));
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text.contains("not indexed yet: 4"), "{text}");
        let (status, text) = of(Some((4, "line 5: not JSON")));
        assert_eq!(status, StatusCode::NOT_FOUND);
        assert!(text.contains("first 4: line 5"), "{text}");
        assert_eq!(of(None).0, StatusCode::NOT_FOUND);
    }
}
