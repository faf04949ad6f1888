//! Units of work. A unit is a (stage, item) pair; it is idempotent, executed at least once, and committed by id.

use pybench_interpreter::InterpreterError;
use pybench_types::id::{CompactDigest, Digest};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RunError;

/// A stage of a run: processes one item at a time. The output is the item's artifact as JSON, which the
/// executor commits to the journal. Equal items must give equal outputs.
#[async_trait]
pub trait Stage: Send + Sync {
    /// Name in the journal: `crawl`, `query`, `rollout`, `grade`.
    fn name(&self) -> &'static str;

    /// What the outputs depend on beside the recipe and the program, such as the digest of the Python environment. A worker
    /// for which it differs takes no unit.
    fn version(&self) -> String {
        String::new()
    }

    /// Processes one item.
    async fn run(&self, item: &str) -> Result<Value, Failure>;
}

/// Why a unit failed: an item, the machine, an endpoint or pybench is at fault, never the evaluated model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{detail}")]
pub struct Failure {
    pub kind: FailureKind,
    /// Message, including what was attempted.
    pub detail: String,
    /// Whether another attempt may succeed.
    pub retryable: bool,
    /// Minimum wait before the next attempt.
    pub retry_after: Option<Duration>,
    /// Digest of the call that failed, if the unit makes several: attempts are counted for each call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<Digest>,
    /// Whether the journal or the store did not answer, or this process was suspended. The unit is not at fault, so it has many
    /// attempts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outage: bool,
}

impl Failure {
    /// A failure that is not retryable.
    pub fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: detail.into(),
            retryable: false,
            retry_after: None,
            call: None,
            outage: false,
        }
    }

    /// Names the call that failed.
    pub fn of_call(mut self, call: Digest) -> Self {
        self.call = Some(call);
        self
    }

    /// Marks the failure as retryable.
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// Whether the unit is at fault, rather than what every other unit needs too.
    pub(crate) fn is_of_unit(&self) -> bool {
        !matches!(self.kind, FailureKind::Budget | FailureKind::Store)
    }

    /// A failure of the journal or the store, which another attempt may not meet.
    pub fn of_outage(detail: impl Into<String>) -> Self {
        Self {
            outage: true,
            ..Self::new(FailureKind::Internal, detail).retryable()
        }
    }

    /// What attempts are counted for: the call that failed, or all outages together.
    pub(crate) fn counted_for(&self) -> String {
        match (&self.call, self.outage) {
            (_, true) => "outage".to_owned(),
            (Some(call), false) => call.as_str().to_owned(),
            (None, false) => String::new(),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        if error.is_outage() {
            return Self::of_outage(error.to_string());
        }
        let kind = match error {
            RunError::Budget(_) => FailureKind::Budget,
            RunError::Endpoint(_) => FailureKind::Endpoint,
            RunError::StoreRefused(_) => FailureKind::Store,
            _ => FailureKind::Internal,
        };
        Self::new(kind, error.to_string())
    }
}

/// Kinds of failure, which are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The item itself is bad, such as a broken file; not retried.
    Item,
    /// The sandbox or the Python environment failed.
    Interpreter,
    /// The endpoint of a model failed; the detail begins with [`pybench_llm::ChatError::kind`].
    Endpoint,
    /// A budget is used up; the stage stops.
    Budget,
    /// The store refuses every request; the stage stops.
    Store,
    /// A replay gave different observations.
    Replay,
    /// Disk, journal, or a bug.
    Internal,
    /// Not a failure: the unit waits for a pending result and runs again once it has arrived, or Ctrl-C ended a
    /// wait. The unit stays pending, and no attempt is counted.
    Deferred,
}

/// State of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnitState {
    Pending,
    Done,
    Failed,
}

/// A unit as recorded in the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct Unit {
    /// Stage name.
    pub stage: String,
    /// Item id.
    pub item: String,
    /// Position of the item within its stage.
    pub position: u64,
    pub state: UnitState,
    /// Attempts started.
    pub attempts: u32,
    /// The artifact, once done.
    pub output: Option<Value>,
    /// The last failure.
    pub failure: Option<Failure>,
}

/// Counts of a stage's units by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageSummary {
    /// Units done, in this or an earlier process.
    pub done: u64,
    /// Units that failed finally.
    pub failed: u64,
    /// Units without an attempt, or to be retried.
    pub pending: u64,
}

/// The items of a stage, by number: names in a list, or names made when they are needed, so that a run of many
/// items does not hold them as text.
pub trait Items: Sync {
    fn len(&self) -> usize;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The item `number`, which is below [`Items::len`].
    fn get(&self, number: usize) -> Cow<'_, str>;
}

impl Items for Vec<String> {
    fn len(&self) -> usize {
        self.len()
    }

    fn get(&self, number: usize) -> Cow<'_, str> {
        Cow::Borrowed(&self[number])
    }
}

impl Items for &[String] {
    fn len(&self) -> usize {
        <[String]>::len(self)
    }

    fn get(&self, number: usize) -> Cow<'_, str> {
        Cow::Borrowed(&self[number])
    }
}

impl Items for Vec<CompactDigest> {
    fn len(&self) -> usize {
        self.len()
    }

    fn get(&self, number: usize) -> Cow<'_, str> {
        Cow::Owned(Digest::from(self[number]).into())
    }
}

/// Executes the units of a stage. Every implementation must pass the tests in `conformance`: units run at
/// least once, are committed by id, retried and resumed.
#[async_trait]
pub trait Executor: Send + Sync {
    /// Executes every item that is not done yet, and returns once no attempt is left.
    ///
    /// Finally failed units are counted and are not errors. Deferred units stay pending, and the caller runs
    /// them again.
    ///
    /// # Errors
    /// [`RunError::Budget`] if a budget is used up, [`RunError::Interrupted`] on Ctrl-C,
    /// [`RunError::Endpoint`] if the API key is refused, [`RunError::StoreRefused`] if the store refuses this process, and
    /// failures of the journal.
    async fn run(&self, stage: Arc<dyn Stage>, items: &dyn Items)
    -> Result<StageSummary, RunError>;
}

/// Converts an error of the sandbox; a missing tool is not retryable.
pub fn interpreter_failure(error: InterpreterError) -> Failure {
    let failure = Failure::new(FailureKind::Interpreter, error.to_string());
    match error {
        InterpreterError::Unavailable(_) => failure,
        InterpreterError::Silent => Failure {
            outage: true,
            ..failure.retryable()
        },
        _ => failure.retryable(),
    }
}
