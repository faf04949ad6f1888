//! One row, one unit.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench::id::Digest;
use pybench::run::{Failure, FailureKind, RunError, RunFolder, Stage, UnitState};
use pybench_datasets::Row;
use serde_json::Value;

use super::again::{Findings, NO_FILE, Reason, Verifier};

/// Name in the journal.
pub(super) const STAGE: &str = "verify";

/// Some rows, by their digests.
pub(super) struct VerifyStage {
    rows: HashMap<String, Row>,
    work: Arc<Verifier>,
}

impl VerifyStage {
    pub(super) fn new(rows: HashMap<String, Row>, work: Arc<Verifier>) -> Self {
        Self { rows, work }
    }
}

#[async_trait]
impl Stage for VerifyStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let missing = || Failure::new(FailureKind::Internal, format!("no row {item}"));
        let row = self.rows.get(item).ok_or_else(missing)?;
        let findings = self.work.examine(row).await?;
        Ok(serde_json::to_value(findings).map_err(RunError::from)?)
    }
}

/// What the journal knows of these rows: findings, or why they could not be run.
pub(super) fn results(
    state: &RunFolder,
    chosen: &[Digest],
) -> Result<HashMap<Digest, Result<Findings, String>>, RunError> {
    let mut known = HashMap::new();
    for unit in state.journal().units(STAGE)? {
        let result = match (unit.state, unit.output, unit.failure) {
            (UnitState::Done, Some(output), _) => Ok(serde_json::from_value(output)?),
            (_, _, Some(failure)) => match failure.detail.strip_prefix(NO_FILE) {
                Some(why) => Ok(Findings::not(Reason::Files, why)),
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
