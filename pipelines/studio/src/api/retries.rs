//! Failed units of a run, made pending again.

use std::sync::Arc;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::routing::post;
use axum::{Json, Router};
use pybench_run::shared::{Retried, retry_failed};
use pybench_run::{FailureKind, Journal, RunError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::edit::routes::Studio;
use crate::handlers::{ApiError, blocking, run_folder};
use crate::sources::Sources;

/// Maximum number of bytes of a request's body.
const MAX_BODY: usize = 4 << 10;

pub(super) fn router() -> Router<Studio> {
    let retry = post(retry).layer(DefaultBodyLimit::max(MAX_BODY));
    Router::new().route("/api/data/{name}/retry", retry)
}

/// Which failed units are retried.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryRequest {
    stage: String,
    /// `item`, `interpreter`, `endpoint`, `budget`, `replay` or `internal`.
    #[schemars(with = "String")]
    kind: FailureKind,
}

/// Failed units of a stage that are pending again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct RetriedUnits {
    pub(crate) stage: String,
    pub(crate) units: u64,
    /// Whether processes that work on the stage make them now; otherwise the command of the run does when it is repeated.
    pub(crate) offered: bool,
}

impl From<Retried> for RetriedUnits {
    fn from(retried: Retried) -> Self {
        Self {
            stage: retried.stage,
            units: retried.units,
            offered: retried.offered,
        }
    }
}

/// Makes the failed units of a stage and kind pending again. When this answers, they are.
async fn retry(
    State(sources): State<Arc<Sources>>,
    Path(name): Path<String>,
    request: Result<Json<RetryRequest>, JsonRejection>,
) -> Result<Json<Vec<RetriedUnits>>, ApiError> {
    let Json(request) = request?;
    blocking(move || {
        let journal = Journal::join_run(&run_folder(&sources, &name)?)?;
        let (stage, kind) = (Some(request.stage.as_str()), Some(request.kind));
        let retried = retry_failed(&journal, stage, kind)?;
        if retried.is_empty() {
            let text = "no unit has failed that way any more; look at the status again";
            return Err(RunError::Conflict(text.to_owned()).into());
        }
        Ok(Json(retried.into_iter().map(RetriedUnits::from).collect()))
    })
    .await
}
