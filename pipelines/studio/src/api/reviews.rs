//! Decisions of people on trajectories.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::routing::{get, put};
use axum::{Json, Router};

use crate::edit::routes::Studio;
use crate::handlers::{ApiError, record, whole, with_source};
use crate::review::{self, Review, ReviewSummary};
use crate::sources::Sources;

/// Maximum number of bytes of a request's body.
pub(super) const MAX_BODY: usize = 256 << 10;

pub(super) fn router() -> Router<Studio> {
    let save = put(save_review).layer(DefaultBodyLimit::max(MAX_BODY));
    Router::new()
        .route("/api/data/{name}/reviews", get(reviews))
        .route("/api/data/{name}/{number}/review", save)
}

/// Who decided what, and how well people agree.
async fn reviews(
    State(sources): State<Arc<Sources>>,
    Path(name): Path<String>,
) -> Result<Json<ReviewSummary>, ApiError> {
    with_source(sources, name.clone(), move |opened| {
        let reviews = review::read_all(opened.run()?)?;
        let ids: Vec<String> = reviews.iter().map(|one| one.trajectory.clone()).collect();
        let tasks = whole(opened, &name)?.tasks_of(&ids)?;
        Ok(Json(review::summary(&reviews, &tasks)))
    })
    .await
}

/// Saves a decision. When this answers, it is on the disk.
async fn save_review(
    State(sources): State<Arc<Sources>>,
    Path((name, number)): Path<(String, String)>,
    review: Result<Json<Review>, JsonRejection>,
) -> Result<Json<Review>, ApiError> {
    let Json(review) = review?;
    with_source(sources, name, move |opened| {
        opened.run()?;
        let (row, _) = record(opened, &number)?;
        // The numbers of a run that goes on may change.
        if row.id != review.trajectory {
            let text = "the list has changed: this number is another trajectory now; reload the page and decide again";
            return Err(ApiError(StatusCode::CONFLICT, text.to_owned()));
        }
        opened.save(|folder| review.save(folder))?;
        Ok(Json(review))
    })
    .await
}
