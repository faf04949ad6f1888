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

/// Whether a turn begins with the step.
fn is_reply(step: &Step) -> bool {
    matches!(step, Step::Reply { .. })
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
        let steps = steps.map_err(RunError::from)?;
        if let Some(turns) = self.folder.turns() {
            let replies = steps.iter().filter(|step| is_reply(step)).count();
            turns.set(self.trajectory.as_str(), replies as u64);
        }
        Ok(steps)
    }

    fn append(&self, position: u64, step: &Step) -> Result<(), Failure> {
        let payload = serde_json::to_value(step).map_err(RunError::from)?;
        let journal = self.folder.journal();
        journal.append(self.trajectory.as_str(), position, &payload)?;
        if let Some(turns) = self.folder.turns().filter(|_| is_reply(step)) {
            turns.add(self.trajectory.as_str());
        }
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
        let trajectory = self.trajectory.as_str();
        if let Some(turns) = self.folder.turns() {
            turns.set(trajectory, 0);
        }
        Ok(self.folder.journal().clear_events(trajectory)?)
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
