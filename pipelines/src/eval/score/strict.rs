//! `strict`: the checker, in a fresh sandbox for each attempt.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench::grade::{Candidate, Checker};
use pybench::id::Digest;
use pybench::run::{Failure, FailureKind, RunError, RunFolder, Stage};
use pybench::task::Task;
use pybench::trajectory::{Finding, Outcome, Trajectory};
use serde_json::Value;

use crate::grade::check_failure;

/// Name of the stage in the journal.
pub const STAGE: &str = "strict";

/// Findings on attempts; items are digests of attempt and checker.
pub struct StrictStage {
    folder: Arc<RunFolder>,
    checker: Checker,
    work: HashMap<String, (Arc<Task>, Arc<Trajectory>)>,
}

impl StrictStage {
    /// With nothing to do yet.
    pub fn new(folder: Arc<RunFolder>, checker: Checker) -> Self {
        Self {
            folder,
            checker,
            work: HashMap::new(),
        }
    }

    /// One more attempt; its item.
    pub fn add(&mut self, task: Arc<Task>, trajectory: Arc<Trajectory>) -> String {
        let digest = Digest::of_json(&(&task.id, &*trajectory, self.checker.digest()));
        let item = digest.to_string();
        self.work.insert(item.clone(), (task, trajectory));
        item
    }
}

/// Whether every finding passes, and there is one.
pub fn passes(findings: &[Finding]) -> bool {
    let good = |finding: &Finding| finding.outcome == Outcome::Pass;
    !findings.is_empty() && findings.iter().all(good)
}

#[async_trait]
impl Stage for StrictStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    async fn run(&self, item: &str) -> Result<Value, Failure> {
        let (task, trajectory) = self.work.get(item).ok_or_else(|| {
            Failure::new(
                FailureKind::Internal,
                format!("no attempt has the item {item}"),
            )
        })?;
        let store = self.folder.store();
        let candidate = Candidate::of(trajectory, store);
        let findings = self.checker.check(task, store, &candidate).await;
        let findings = findings.map_err(check_failure)?;
        Ok(serde_json::to_value(findings).map_err(RunError::from)?)
    }
}
