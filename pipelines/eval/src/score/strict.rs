//! The score `strict`: runs the checker in a fresh sandbox for each attempt.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use pybench_checks::{Candidate, Checker};
use pybench_run::{Failure, FailureKind, RunError, RunFolder, Stage};
use pybench_types::id::Digest;
use pybench_types::task::Task;
use pybench_types::trajectory::{Finding, Outcome, Trajectory};
use serde_json::Value;

use crate::suite::{SuiteAttempt, SuiteEnv};
use pybench_checks::check_failure;

/// Name of the stage in the journal.
pub const STAGE: &str = "strict";

/// Stage that checks attempts. Items are digests of task, attempt and checker.
pub struct StrictStage {
    folder: Arc<RunFolder>,
    checker: Checker,
    attempts: HashMap<String, (Arc<Task>, Arc<Trajectory>)>,
}

impl StrictStage {
    /// Creates a stage without attempts.
    pub fn new(folder: Arc<RunFolder>, checker: Checker) -> Self {
        Self {
            folder,
            checker,
            attempts: HashMap::new(),
        }
    }

    /// Adds an attempt and returns its item.
    pub fn add(&mut self, task: Arc<Task>, trajectory: Arc<Trajectory>) -> String {
        let digest = Digest::of_json(&(&task.id, &*trajectory, self.checker.digest()));
        let item = digest.to_string();
        self.attempts.insert(item.clone(), (task, trajectory));
        item
    }
}

/// The findings of each attempt at a task with checks; the results are in the order of `attempts`.
///
/// # Errors
/// The errors of the executor.
pub async fn check(
    env: &SuiteEnv,
    attempts: &[SuiteAttempt<'_>],
) -> Result<Vec<Option<Result<Vec<Finding>, Failure>>>, RunError> {
    let mut stage = StrictStage::new(env.folder.clone(), env.checker.clone());
    let mut items = Vec::new();
    for attempt in attempts {
        let task = &attempt.task.task;
        let checked = attempt.task.headline.counts || !task.checks.is_empty();
        let trajectory = attempt.trajectory.filter(|_| checked);
        items.push(trajectory.map(|one| stage.add(task.clone(), one.clone())));
    }
    env.results(Arc::new(stage), items).await
}

/// Whether there is at least one finding and all of them pass.
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
        let (task, trajectory) = self.attempts.get(item).ok_or_else(|| {
            Failure::new(
                FailureKind::Internal,
                format!("no attempt has the item {item}"),
            )
        })?;
        let store = self.folder.store();
        let candidate = Candidate::of(trajectory, store)?;
        let findings = self.checker.check(task, store, &candidate).await;
        let findings = findings.map_err(check_failure)?;
        Ok(serde_json::to_value(findings).map_err(RunError::from)?)
    }
}
