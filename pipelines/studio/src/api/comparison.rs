//! Two or more runs on the same tasks, and two trajectories side by side.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Json, Router};
use schemars::JsonSchema;
use serde::Deserialize;

use super::trajectory::shown;
use crate::align::PairView;
use crate::compare::matrix::{Matrix, MatrixQuery, Side, matrix};
use crate::compare::{CompareQuery, Comparison, compare};
use crate::edit::routes::Studio;
use crate::handlers::{ApiError, blocking, open, whole};
use crate::sources::Sources;

pub(super) fn router() -> Router<Studio> {
    Router::new()
        .route("/api/compare", get(comparison))
        .route("/api/compare/matrix", get(several))
        .route("/api/compare/pair", get(pair))
}

async fn comparison(
    State(sources): State<Arc<Sources>>,
    query: Result<Query<CompareQuery>, QueryRejection>,
) -> Result<Json<Comparison>, ApiError> {
    let Query(query) = query?;
    blocking(move || {
        let (a, b) = (open(&sources, &query.a)?, open(&sources, &query.b)?);
        let (a, b) = (whole(&a, &query.a)?, whole(&b, &query.b)?);
        Ok(Json(compare(a, b, &query)?))
    })
    .await
}

async fn several(
    State(sources): State<Arc<Sources>>,
    query: Result<Query<MatrixQuery>, QueryRejection>,
) -> Result<Json<Matrix>, ApiError> {
    let Query(query) = query?;
    blocking(move || {
        let names = query.sides()?;
        let opened = names.iter().map(|(name, _)| open(&sources, name));
        let opened = opened.collect::<Result<Vec<_>, _>>()?;
        let sides = names.iter().zip(&opened);
        let sides = sides.map(|(&(name, teacher), opened)| {
            let index = whole(opened, name);
            index.map(|index| Side {
                name,
                teacher,
                index,
            })
        });
        let sides = sides.collect::<Result<Vec<Side<'_>>, ApiError>>()?;
        Ok(Json(matrix(&sides, &query)?))
    })
    .await
}

/// Two trajectories: names of their runs, and their numbers. The page has the filters of the comparison beside them.
#[derive(Deserialize, JsonSchema)]
pub(super) struct PairQuery {
    a: String,
    a_number: u64,
    b: String,
    b_number: u64,
}

async fn pair(
    State(sources): State<Arc<Sources>>,
    query: Result<Query<PairQuery>, QueryRejection>,
) -> Result<Json<PairView>, ApiError> {
    let Query(query) = query?;
    blocking(move || {
        let view = |name: &str, number: u64| {
            let opened = open(&sources, name)?;
            shown(&opened, &number.to_string(), 1)
        };
        let (a, b) = (
            view(&query.a, query.a_number)?,
            view(&query.b, query.b_number)?,
        );
        Ok(Json(PairView::new(a, b)))
    })
    .await
}
