//! Runs the checker in a fresh sandbox for each trajectory.

use std::sync::Arc;

use async_trait::async_trait;
use pybench_checks::{Candidate, Checker, check_failure};
use pybench_interpreter::Interpreter;
use pybench_run::{ContentStore, Failure, RunContext, RunError};
use pybench_types::task::Task;
use pybench_types::trajectory::{Finding, Trajectory};

use super::TrajectoryChecker;

/// The checker with sessions of the recipe's interpreter.
pub(super) struct SandboxedChecker {
    checker: Checker,
    digest: String,
    store: ContentStore,
}

impl SandboxedChecker {
    /// Uses the interpreter of the recipe.
    ///
    /// # Errors
    /// [`RunError::Environment`] if the interpreter cannot run.
    pub(super) fn of(context: &RunContext) -> Result<Self, RunError> {
        let environment = |error: &dyn std::fmt::Display| RunError::Environment(error.to_string());
        let mut choice = context.recipe.interpreter.clone();
        // The checker needs no extra wheels.
        choice.wheelhouse = None;
        let interpreter =
            pybench_interpreter_containers::paced(&choice).map_err(|error| environment(&error))?;
        Self::new(interpreter, context.folder.store().clone())
    }

    /// Uses the given interpreter.
    ///
    /// # Errors
    /// [`RunError::Environment`] if the interpreter cannot run.
    pub(super) fn new(
        interpreter: Arc<dyn Interpreter>,
        store: ContentStore,
    ) -> Result<Self, RunError> {
        let checker = Checker::new(interpreter);
        let checker = checker.map_err(|error| RunError::Environment(error.to_string()))?;
        Ok(Self {
            digest: checker.digest(),
            checker,
            store,
        })
    }
}

#[async_trait]
impl TrajectoryChecker for SandboxedChecker {
    async fn check(&self, task: &Task, trajectory: &Trajectory) -> Result<Vec<Finding>, Failure> {
        let candidate = Candidate::of(trajectory, &self.store)?;
        let findings = self.checker.check(task, &self.store, &candidate).await;
        findings.map_err(check_failure)
    }

    fn digest(&self) -> &str {
        &self.digest
    }
}
