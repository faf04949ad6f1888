//! What other programs may learn of a run while it goes on: a process has one observer, or none, which costs nothing.
//!
//! An observer gets names, counts and times; never prompts, replies, code, outputs or the details of failures.

use std::sync::OnceLock;
use std::time::SystemTime;

use pybench_types::trajectory::Usage;
use serde_json::Value;

use crate::{Failure, FailureKind, Journal};

/// Gets events of all runs of a process. Its methods are called where the work is done and must return at once.
pub trait Observer: Send + Sync {
    /// A step of a trajectory has ended.
    fn step(&self, step: ObservedStep<'_>);

    /// An attempt at a unit has ended.
    fn unit(&self, unit: ObservedUnit<'_>);

    /// The state of a stage, every few seconds.
    fn stage(&self, stage: ObservedStage<'_>);
}

/// A step of a trajectory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedStep<'a> {
    /// Id of the trajectory.
    pub trajectory: &'a str,
    pub kind: StepKind,
    pub ended: SystemTime,
}

/// What a step was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// The model replied.
    Reply(Usage),
    /// The interpreter executed a cell.
    Cell,
    /// A feedback on the answer.
    Feedback,
}

/// An attempt at a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedUnit<'a> {
    pub stage: &'a str,
    pub item: &'a str,
    pub started: SystemTime,
    pub ended: SystemTime,
    pub end: UnitOutcome<'a>,
}

/// How an attempt at a unit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitOutcome<'a> {
    Done {
        /// Model of a trajectory.
        model: Option<&'a str>,
        /// Whether a verdict accepts its trajectory.
        accepted: Option<bool>,
    },
    Failed(FailureKind),
}

/// State of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedStage<'a> {
    pub stage: &'a str,
    /// Units without a result.
    pub pending: u64,
    /// Units that this process works on.
    pub in_work: u64,
    /// Cost of the run so far, in millionths of a US dollar.
    pub micro_usd: u64,
}

static OBSERVER: OnceLock<Box<dyn Observer>> = OnceLock::new();

/// Makes this the observer of the process; `false` if there is one already.
pub fn observe(observer: Box<dyn Observer>) -> bool {
    OBSERVER.set(observer).is_ok()
}

/// The observer of the process.
pub fn observer() -> Option<&'static dyn Observer> {
    OBSERVER.get().map(|observer| observer.as_ref())
}

/// Reports an attempt at a unit that began at `started`.
pub(crate) fn report_unit(
    stage: &str,
    item: &str,
    started: SystemTime,
    end: &Result<Value, Failure>,
) {
    if let Some(observer) = observer() {
        observer.unit(ObservedUnit {
            stage,
            item,
            started,
            ended: SystemTime::now(),
            end: outcome(end),
        });
    }
}

/// Reports the state of a stage.
pub(crate) fn report_stage(stage: &str, in_work: usize, journal: &Journal) {
    let Some(observer) = observer() else {
        return;
    };
    // What cannot be read now is reported the next time.
    if let (Ok(summary), Ok(spent)) = (journal.summary(stage), journal.spent()) {
        observer.stage(ObservedStage {
            stage,
            pending: summary.pending,
            in_work: in_work as u64,
            micro_usd: spent.micro_usd,
        });
    }
}

fn outcome(end: &Result<Value, Failure>) -> UnitOutcome<'_> {
    match end {
        Ok(output) => UnitOutcome::Done {
            model: output.get("teacher").and_then(Value::as_str),
            accepted: output.get("accepted").and_then(Value::as_bool),
        },
        Err(failure) => UnitOutcome::Failed(failure.kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn outcomes_have_no_contents() {
        let done = Ok(json!({"teacher": "openai:m", "messages": ["secret"]}));
        let expected = UnitOutcome::Done {
            model: Some("openai:m"),
            accepted: None,
        };
        assert_eq!(outcome(&done), expected);
        let verdict = Ok(json!({"trajectory": "a", "accepted": false}));
        let expected = UnitOutcome::Done {
            model: None,
            accepted: Some(false),
        };
        assert_eq!(outcome(&verdict), expected);
        let failed = Err(Failure::new(FailureKind::Endpoint, "secret"));
        assert_eq!(outcome(&failed), UnitOutcome::Failed(FailureKind::Endpoint));
    }
}
