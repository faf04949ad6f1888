//! The stage that verifies rows. Each row is a unit of the journal.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_datasets::Row;
use pybench_run::{Failure, FailureKind, RunError, RunFolder, Stage, UnitState};
use pybench_types::id::Digest;
use serde_json::Value;

use super::replay::{DiffReason, MISSING_FILE, ReplayDiff, Verifier};

/// Name of the stage in the journal.
pub(super) const STAGE: &str = "verify";

/// Verifies the given rows, which are keyed by their digests.
pub(super) struct VerifyStage {
    rows: HashMap<String, Row>,
    verifier: Arc<Verifier>,
}

impl VerifyStage {
    pub(super) fn new(rows: HashMap<String, Row>, verifier: Arc<Verifier>) -> Self {
        Self { rows, verifier }
    }
}

#[async_trait]
impl Stage for VerifyStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let missing = || {
            Failure::new(
                FailureKind::Internal,
                format!("row {item} is not in this batch"),
            )
        };
        let row = self.rows.get(item).ok_or_else(missing)?;
        let diff = self.verifier.verify(row).await?;
        Ok(serde_json::to_value(diff).map_err(RunError::from)?)
    }
}

/// The results of these rows in the journal: the diff, or the reason why a row could not be verified.
pub(super) fn results(
    state: &RunFolder,
    chosen: &[Digest],
) -> Result<HashMap<Digest, Result<ReplayDiff, String>>, RunError> {
    let mut known = HashMap::new();
    for unit in state.journal().units(STAGE)? {
        let result = match (unit.state, unit.output, unit.failure) {
            (UnitState::Done, Some(output), _) => Ok(serde_json::from_value(output)?),
            (_, _, Some(failure)) => match failure.detail.strip_prefix(MISSING_FILE) {
                Some(why) => Ok(ReplayDiff::with_reason(DiffReason::Files, why)),
                None => Err(failure.to_string()),
            },
            _ => continue,
        };
        known.insert(unit.item, result);
    }
    let found = chosen
        .iter()
        .filter_map(|digest| Some((digest.clone(), known.remove(digest.as_str())?)));
    Ok(found.collect())
}
