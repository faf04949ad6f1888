//! Units of work: (stage, item), idempotent, delivered at least once, committed by id.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RunError;

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

impl Failure {
    /// A failure that another attempt would meet again.
    pub fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            retryable: false,
            retry_after: None,
        }
    }

    /// The same, but another attempt may succeed.
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        let kind = match error {
            RunError::Budget(_) => FailureKind::Budget,
            RunError::Endpoint(_) => FailureKind::Endpoint,
            _ => FailureKind::Internal,
        };
        Self::new(kind, error.to_string())
    }
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
    /// None: what the unit waits for is on its way, and the unit is to be run again once it is there. It
    /// stays as it is, and no attempt is counted.
    Deferred,
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

/// Does the units of a stage. Every implementation passes the conformance tests in
/// `run::conformance`: delivered at least once, committed by id, retried, resumed.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Do every item that is not done yet, and return once none is left to try.
    ///
    /// Units that failed for good are counted, not errors: the caller decides; deferred ones stay pending,
    /// and the caller runs them again. Errors:
    /// [`RunError::Budget`] when a budget ran out, [`RunError::Interrupted`] on Ctrl-C,
    /// [`RunError::Endpoint`] when the key is refused, and failures of the journal.
    async fn run(&self, stage: Arc<dyn Stage>, items: &[String]) -> Result<StageSummary, RunError>;
}
