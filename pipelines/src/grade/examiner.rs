//! The examiner of real runs: the checker, in a fresh sandbox for each trajectory.

use async_trait::async_trait;
use pybench::agent::interpreter_failure;
use pybench::grade::{Candidate, CheckError, Checker};
use pybench::run::{ContentStore, Failure, FailureKind, RunContext, RunError};
use pybench::task::Task;
use pybench::trajectory::{Finding, Trajectory};

use super::Examiner;

/// Runs the checker's sessions in the recipe's interpreter.
pub(super) struct Sandboxed {
    checker: Checker,
    digest: String,
    store: ContentStore,
}

impl Sandboxed {
    /// With the interpreter of the recipe. [`RunError::Environment`] where it cannot run.
    pub(super) fn of(context: &RunContext) -> Result<Self, RunError> {
        let environment = |error: &dyn std::fmt::Display| RunError::Environment(error.to_string());
        let mut choice = context.recipe.interpreter.clone();
        // Wheels are the agent's business.
        choice.wheelhouse = None;
        let interpreter =
            pybench::interpreter::interpreter(&choice).map_err(|error| environment(&error))?;
        let checker = Checker::new(interpreter).map_err(|error| environment(&error))?;
        Ok(Self {
            digest: checker.digest(),
            checker,
            store: context.folder.store().clone(),
        })
    }
}

#[async_trait]
impl Examiner for Sandboxed {
    async fn examine(&self, task: &Task, trajectory: &Trajectory) -> Result<Vec<Finding>, Failure> {
        let candidate = Candidate::of(trajectory, &self.store);
        let findings = self.checker.check(task, &self.store, &candidate).await;
        findings.map_err(check_failure)
    }

    fn digest(&self) -> &str {
        &self.digest
    }
}

/// A failure of ours: the task's, the sandbox's or the disk's, never the model's.
pub(crate) fn check_failure(error: CheckError) -> Failure {
    let text = error.to_string();
    match error {
        CheckError::Interpreter(error) => interpreter_failure(error),
        // The same task is as wrong the next time.
        CheckError::Task(_) => Failure::new(FailureKind::Internal, text),
        CheckError::Checker(_) | CheckError::Io { .. } => {
            Failure::new(FailureKind::Internal, text).retryable()
        }
    }
}
