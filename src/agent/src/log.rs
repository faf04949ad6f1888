//! Turn log in the journal of a run.

use std::sync::Arc;
use std::time::SystemTime;

use super::{Step, TurnLog};
use pybench_run::observer::{ObservedStep, StepKind, observer};
use pybench_run::{Failure, FailureKind, RunError, RunFolder};
use pybench_types::id::Digest;

/// What an observer learns of a step.
fn kind_of(step: &Step) -> StepKind {
    match step {
        Step::Reply { reply } => StepKind::Reply(reply.usage),
        Step::Observation { .. } => StepKind::Cell,
        Step::Feedback { .. } => StepKind::Feedback,
    }
}

/// The turn log of a trajectory, stored in the journal of its run.
#[derive(Clone, Debug)]
pub struct JournalLog {
    folder: Arc<RunFolder>,
    trajectory: Digest,
}

impl JournalLog {
    pub fn new(folder: Arc<RunFolder>, trajectory: Digest) -> Self {
        Self { folder, trajectory }
    }
}

impl TurnLog for JournalLog {
    fn steps(&self) -> Result<Vec<Step>, Failure> {
        let events = self.folder.journal().events(self.trajectory.as_str())?;
        let steps = events
            .into_iter()
            .map(|event| serde_json::from_value(event.payload));
        let steps: Result<Vec<Step>, _> = steps.collect();
        Ok(steps.map_err(RunError::from)?)
    }

    fn append(&self, position: u64, step: &Step) -> Result<(), Failure> {
        let payload = serde_json::to_value(step).map_err(RunError::from)?;
        let journal = self.folder.journal();
        journal.append(self.trajectory.as_str(), position, &payload)?;
        if let Some(observer) = observer() {
            observer.step(ObservedStep {
                trajectory: self.trajectory.as_str(),
                kind: kind_of(step),
                ended: SystemTime::now(),
            });
        }
        Ok(())
    }

    fn clear(&self) -> Result<(), Failure> {
        Ok(self
            .folder
            .journal()
            .clear_events(self.trajectory.as_str())?)
    }

    fn may_continue(&self) -> Result<(), Failure> {
        match self.folder.is_draining() {
            true => Err(Failure::new(
                FailureKind::Deferred,
                "this worker ends; another one continues after the last step",
            )),
            false => Ok(()),
        }
    }
}
