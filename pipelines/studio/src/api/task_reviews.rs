//! Decisions of people on tasks before they are solved.

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::routing::{get, put};
use axum::{Json, Router};
use pybench_types::id::Digest;

use super::reviews::MAX_BODY;
use crate::edit::routes::Studio;
use crate::handlers::{ApiError, blocking, not_found, run_folder};
use crate::sources::Sources;
use crate::task_review::{TaskQuery, TaskQueue, TaskReview, queue, save};

pub(super) fn router() -> Router<Studio> {
    let decide = put(decide).layer(DefaultBodyLimit::max(MAX_BODY));
    Router::new()
        .route("/api/data/{name}/tasks", get(tasks))
        .route("/api/data/{name}/tasks/{id}/review", decide)
}

async fn tasks(
    State(sources): State<Arc<Sources>>,
    Path(name): Path<String>,
    query: Result<Query<TaskQuery>, QueryRejection>,
) -> Result<Json<TaskQueue>, ApiError> {
    let Query(query) = query?;
    blocking(move || Ok(Json(queue(&run_folder(&sources, &name)?, &query)?))).await
}

/// Saves a decision. When this answers, it is on the disk.
async fn decide(
    State(sources): State<Arc<Sources>>,
    Path((name, id)): Path<(String, String)>,
    review: Result<Json<TaskReview>, JsonRejection>,
) -> Result<Json<TaskReview>, ApiError> {
    let Json(review) = review?;
    let id = Digest::try_from(id).map_err(|_| not_found("the id of a task has 64 hex digits"))?;
    blocking(move || {
        let folder = run_folder(&sources, &name)?;
        Ok(Json(save(&folder, &id, &review)?))
    })
    .await
}
