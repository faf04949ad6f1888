//! What came out: leaderboards of evaluations, learning curves of training runs, statistics of datasets.

pub(crate) mod leaderboard;
pub(crate) mod statistics;
pub(crate) mod training;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path as PathOf, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use axum::{Extension, Json, Router};
use pybench_eval::run::RESULTS;
use pybench_run::RunError;
use pybench_show::TrajectorySource;
use pybench_synthesize::stats::dataset_of;
use pybench_types::id::Digest;

use crate::edit::routes::Studio;
use crate::handlers::{ApiError, blocking, not_found};
use crate::live::{json, server_sent};
use crate::sources::{Sources, files_of_dataset, state_of};
use leaderboard::{EvaluationSummary, Results, leaderboards};
use statistics::DatasetStatistics;
use training::{TrainingRun, training_runs};

/// The learning curves have this name among what is followed; names of runs have no slash.
const CURVES: &str = "results/training";

pub(crate) fn router() -> Router<Studio> {
    Router::new()
        .route("/api/results", get(results))
        .route("/api/results/training", get(learning_curves))
        .route("/api/results/training/events", get(follow_curves))
        .route("/api/data/{name}/statistics", get(dataset_statistics))
        .layer(Extension(Arc::new(Known::default())))
}

/// What was computed, with the state of the files that it was computed from: the statistics take a while.
#[derive(Default)]
struct Known {
    evaluations: Memory<EvaluationSummary>,
    datasets: Memory<DatasetStatistics>,
}

/// Values by name, each valid for one state.
struct Memory<T>(Mutex<HashMap<String, (Digest, Arc<T>)>>);

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Memory<T> {
    /// The value of this name, made again if the state is another one.
    fn get(
        &self,
        name: &str,
        state: Digest,
        make: impl FnOnce() -> Result<T, RunError>,
    ) -> Result<Arc<T>, RunError> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, value)) = lock().get(name)
            && *known == state
        {
            return Ok(value.clone());
        }
        let value = Arc::new(make()?);
        lock().insert(name.to_owned(), (state, value.clone()));
        Ok(value)
    }
}

async fn results(
    State(sources): State<Arc<Sources>>,
    Extension(known): Extension<Arc<Known>>,
) -> Result<Json<Results>, ApiError> {
    blocking(move || Ok(Json(all_results(&sources, &known)))).await
}

fn all_results(sources: &Sources, known: &Known) -> Results {
    let summary = |name: &str, folder: &Path| {
        let records = folder.join(RESULTS);
        let state = state_of(std::slice::from_ref(&records));
        let read = || EvaluationSummary::read(&records);
        known.evaluations.get(name, state, read)
    };
    results_of(sources, summary)
}

/// The leaderboards of all evaluations, without anything that was computed before.
pub(crate) fn results_now(sources: &Sources) -> Results {
    results_of(sources, |_, folder| {
        EvaluationSummary::read(&folder.join(RESULTS)).map(Arc::new)
    })
}

fn results_of(
    sources: &Sources,
    summary: impl Fn(&str, &Path) -> Result<Arc<EvaluationSummary>, RunError>,
) -> Results {
    let (mut evaluations, mut problems) = (Vec::new(), Vec::new());
    for (name, folder) in sources.run_folders() {
        if !folder.join(RESULTS).is_file() {
            continue;
        }
        match summary(&name, &folder) {
            Ok(found) => evaluations.push((name, found)),
            Err(error) => problems.push(error.to_string()),
        }
    }
    Results {
        leaderboards: leaderboards(&evaluations),
        problems,
    }
}

async fn learning_curves(
    State(sources): State<Arc<Sources>>,
) -> Result<Json<Vec<TrainingRun>>, ApiError> {
    blocking(move || {
        Ok(Json(
            sources.runs_dir().map_or_else(Vec::new, training_runs),
        ))
    })
    .await
}

/// The learning curves, now and whenever a trainer or an evaluation has written.
async fn follow_curves(State(sources): State<Arc<Sources>>) -> Response {
    let read = curves_reader(sources.clone());
    server_sent(sources.watchers().follow(CURVES, read))
}

/// Reads the curves again when a file of theirs has changed.
fn curves_reader(sources: Arc<Sources>) -> impl FnMut() -> String + Send + 'static {
    let (mut known, mut text) = (None, String::new());
    move || {
        let state = state_of(&sources.runs_dir().map_or_else(Vec::new, training::files));
        if known.as_ref() != Some(&state) {
            text = json(&sources.runs_dir().map_or_else(Vec::new, training_runs));
            known = Some(state);
        }
        text.clone()
    }
}

async fn dataset_statistics(
    State(sources): State<Arc<Sources>>,
    Extension(known): Extension<Arc<Known>>,
    PathOf(name): PathOf<String>,
) -> Result<Json<DatasetStatistics>, ApiError> {
    blocking(move || {
        let source = sources.find(&name);
        let source =
            source.ok_or_else(|| not_found(format!("there is no run or dataset `{name}` here")))?;
        let dataset = match source {
            TrajectorySource::Run(folder) => dataset_of(&folder),
            TrajectorySource::Dataset(path) => path,
            TrajectorySource::InspectLog(_) => {
                let text = format!("`{name}` is a log, which has no rows");
                return Err(ApiError(StatusCode::BAD_REQUEST, text));
            }
        };
        if !dataset.exists() {
            let text = format!("the run `{name}` has no dataset yet");
            return Err(ApiError(StatusCode::NOT_FOUND, text));
        }
        let state = state_of(&files_of_dataset(&dataset)?);
        let read = || DatasetStatistics::read(&dataset);
        let statistics = known.datasets.get(&name, state, read)?;
        Ok(Json(statistics.as_ref().clone()))
    })
    .await
}
