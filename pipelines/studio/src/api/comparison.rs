//! Two or more runs on the same tasks, and two trajectories side by side.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Extension, Json, Router};
use schemars::JsonSchema;
use serde::Deserialize;

use super::trajectory::shown;
use crate::align::{Divergence, PairView};
use crate::compare::matrix::{Matrix, MatrixQuery, Side, matrix};
use crate::compare::{CompareQuery, Comparison, compare};
use crate::divergences::Divergences;
use crate::edit::routes::Studio;
use crate::handlers::{ApiError, blocking, found, open, whole};
use crate::sources::{Opened, Sources};

pub(super) fn router() -> Router<Studio> {
    Router::new()
        .route("/api/compare", get(comparison))
        .route("/api/compare/matrix", get(several))
        .route("/api/compare/pair", get(pair))
        .layer(Extension(Arc::new(Divergences::default())))
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
    /// A turn that the pages have, from 1.
    #[serde(default)]
    turn: u64,
}

async fn pair(
    State(sources): State<Arc<Sources>>,
    Extension(divergences): Extension<Arc<Divergences>>,
    query: Result<Query<PairQuery>, QueryRejection>,
) -> Result<Json<PairView>, ApiError> {
    let Query(query) = query?;
    blocking(move || {
        let (a, b) = (open(&sources, &query.a)?, open(&sources, &query.b)?);
        let (a_number, b_number) = (query.a_number.to_string(), query.b_number.to_string());
        let of_a = shown(&a, &a_number, query.turn)?;
        let of_b = shown(&b, &b_number, query.turn)?;
        let pair = [
            (a.index.id(), query.a_number),
            (b.index.id(), query.b_number),
        ];
        let divergence = divergences.get(pair, || {
            Divergence::find(|before| {
                let turns = |of: &Opened, number: &str| {
                    found(of, number, |number| of.index.turns_after(number, before))
                };
                Ok::<_, ApiError>([turns(&a, &a_number)?, turns(&b, &b_number)?])
            })
        })?;
        Ok(Json(PairView::new(of_a, of_b, divergence)))
    })
    .await
}
