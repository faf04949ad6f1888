//! Units of work: (stage, item), idempotent, delivered at least once, committed by id.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One stage's way to do one item. The output is the item's artefact as JSON; an executor commits
/// it to the journal. Equal items give equal outputs.
#[async_trait]
pub trait Stage: Send + Sync {
    /// Name in the journal: `crawl`, `query`, `rollout`, `grade`.
    fn name(&self) -> &'static str;

    /// Do one item.
    async fn run(&self, item: &str) -> Result<Value, Failure>;
}

/// Why a unit failed: always a failure of ours, of the machine or of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{detail}")]
pub struct Failure {
    /// What kind.
    pub kind: FailureKind,
    /// In words, with what was tried.
    pub detail: String,
    /// Whether another attempt may succeed.
    pub retryable: bool,
    /// Do not come again before this has passed.
    pub retry_after: Option<Duration>,
}

/// Kinds of failure, each counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The item itself is bad (a broken file); not retried.
    Item,
    /// The sandbox or the Python environment.
    Interpreter,
    /// The teacher's endpoint; the detail begins with [`crate::llm::TeacherError::kind`].
    Endpoint,
    /// A budget is used up: the stage stops.
    Budget,
    /// A replay gave other observations.
    Replay,
    /// Disk, journal, or a bug.
    Internal,
}

/// Where a unit stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum UnitState {
    Pending,
    Done,
    Failed,
}

/// A unit as the journal holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Stage name.
    pub stage: String,
    /// Item id.
    pub item: String,
    /// Order of the item within its stage.
    pub position: u64,
    /// Where it stands.
    pub state: UnitState,
    /// Attempts begun.
    pub attempts: u32,
    /// The artefact, once done.
    pub output: Option<Value>,
    /// The last failure.
    pub failure: Option<Failure>,
}

/// What became of a stage's units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageSummary {
    /// Units done, now or before.
    pub done: u64,
    /// Units that failed for good.
    pub failed: u64,
    /// Units not tried or to be tried again.
    pub pending: u64,
}
