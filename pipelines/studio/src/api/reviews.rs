//! Decisions of people on trajectories.

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, put};
use axum::{Json, Router};

use crate::edit::routes::Studio;
use crate::handlers::{ApiError, blocking, open, record, run_folder, whole, with_source};
use crate::live::{json, server_sent};
use crate::review::{self, Review, ReviewSummary};
use crate::sources::{Opened, Sources};

/// Maximum number of bytes of a request's body.
pub(super) const MAX_BODY: usize = 256 << 10;

pub(super) fn router() -> Router<Studio> {
    let save = put(save_review).layer(DefaultBodyLimit::max(MAX_BODY));
    Router::new()
        .route("/api/data/{name}/reviews", get(reviews))
        .route("/api/data/{name}/reviews/events", get(follow))
        .route("/api/data/{name}/{number}/review", save)
}

/// Who decided what, and how well people agree.
async fn reviews(
    State(sources): State<Arc<Sources>>,
    Path(name): Path<String>,
) -> Result<Json<ReviewSummary>, ApiError> {
    with_source(sources, name.clone(), move |opened| {
        let reviews = review::read_all(opened.run()?)?;
        Ok(Json(summary(opened, &name, &reviews)?))
    })
    .await
}

/// Agreement is counted over tasks, which the whole index has.
fn summary(opened: &Opened, name: &str, reviews: &[Review]) -> Result<ReviewSummary, ApiError> {
    let ids: Vec<String> = reviews.iter().map(|one| one.trajectory.clone()).collect();
    let tasks = whole(opened, name)?.tasks_of(&ids)?;
    Ok(review::summary(reviews, &tasks))
}

/// The same, now and whenever somebody has decided.
async fn follow(
    State(sources): State<Arc<Sources>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    let (of, found) = (sources.clone(), name.clone());
    let folder = blocking(move || run_folder(&of, &found)).await?;
    // The names of runs, which are followed too, have no slash.
    let followed = format!("reviews/{name}");
    let read = reader(sources.clone(), name, folder);
    Ok(server_sent(sources.watchers().follow(&followed, read)))
}

/// Reads the decisions. The summary is computed only when they have changed, since agreement needs a bootstrap.
fn reader(
    sources: Arc<Sources>,
    name: String,
    folder: PathBuf,
) -> impl FnMut() -> String + Send + 'static {
    let (mut known, mut text) = (None, String::new());
    move || {
        // If the journal cannot be read now, the next reading tries again.
        let Ok(reviews) = review::read_all(&folder) else {
            return text.clone();
        };
        if known.as_ref() != Some(&reviews) {
            let counted =
                open(&sources, &name).and_then(|opened| summary(&opened, &name, &reviews));
            if let Ok(counted) = counted {
                text = json(&counted);
                known = Some(reviews);
            }
        }
        text.clone()
    }
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
