//! The routes. Each page of the app has one, which answers JSON.

mod comparison;
pub(crate) mod openapi;
mod previews;
pub(crate) mod retries;
mod reviews;
mod task_reviews;
#[cfg(test)]
mod tests;
mod trajectory;

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::middleware::from_fn_with_state;
use axum::routing::{any, get};
use axum::{Json, Router};

use crate::access::{self, Token};
use crate::assets;
use crate::chat::{self, chats::Chats, routes::ChatState};
use crate::edit::forks::Forks;
use crate::edit::routes::{self, Studio};
use crate::handlers::{ApiError, blocking, not_found, open, with_source};
use crate::index::{Facet, ListQuery, Page};
use crate::own_address;
use crate::runs::SourceInfo;
use crate::sources::Sources;
use crate::{live, recipe_view, results};

/// The routes of the studio, behind its token.
pub(crate) fn router(
    sources: Arc<Sources>,
    forks: Arc<Forks>,
    chats: Arc<Chats>,
    token: Token,
) -> Router {
    let chat_state = ChatState {
        chats,
        sources: sources.clone(),
    };
    let chats_router = chat::routes::router().merge(chat::previews::router());
    let routes = Router::new()
        .merge(routes::router())
        .merge(chats_router.with_state::<Studio>(chat_state))
        .merge(comparison::router())
        .merge(live::router())
        .merge(openapi::router())
        .merge(previews::router())
        .merge(recipe_view::router())
        .merge(results::router())
        .merge(retries::router())
        .merge(reviews::router())
        .merge(task_reviews::router())
        .merge(trajectory::router())
        .route("/api/data", get(list))
        .route("/api/data/{name}", get(page))
        .route("/api/data/{name}/facets", get(facets))
        .route("/api/{*rest}", any(unknown_route))
        .fallback_service(get(assets::serve))
        .with_state(Studio { sources, forks });
    own_address::answer(routes).layer(from_fn_with_state(token, access::require))
}

async fn unknown_route() -> ApiError {
    not_found("there is no such route; see docs/studio-api.md")
}

async fn list(State(sources): State<Arc<Sources>>) -> Result<Json<Vec<SourceInfo>>, ApiError> {
    blocking(move || Ok(Json(sources.list()))).await
}

async fn page(
    State(sources): State<Arc<Sources>>,
    Path(name): Path<String>,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> Result<Json<Page>, ApiError> {
    let Query(query) = query?;
    blocking(move || {
        let opened = open(&sources, &name)?;
        let page = opened.page(query)?;
        let state = sources.list_state(&name, &opened);
        Ok(Json(Page { state, ..page }))
    })
    .await
}

async fn facets(
    State(sources): State<Arc<Sources>>,
    Path(name): Path<String>,
) -> Result<Json<Vec<Facet>>, ApiError> {
    with_source(sources, name, |opened| Ok(Json(opened.index.facets()?))).await
}
