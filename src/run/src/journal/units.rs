//! Units of work in the journal.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Journal;
use super::leased::Attempt;
use crate::{Failure, RunError, StageSummary, Unit, UnitState};

/// Which finally failed units a repeated command retries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryFailed {
    None,
    /// All except bad items: failures of the machine, of an endpoint, or of pybench.
    #[default]
    ExceptBadItems,
    All,
}

/// The last failure of a unit.
#[derive(Clone, Debug, PartialEq)]
pub struct UnitFailure {
    /// Stage name.
    pub stage: String,
    /// Item id.
    pub item: String,
    /// Whether the failure is final; otherwise the next command retries the unit.
    pub last: bool,
    pub failure: Failure,
}

impl Journal {
    /// Adds units in this order; existing units keep their position and state.
    pub fn enqueue(
        &self,
        stage: &str,
        items: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<(), RunError> {
        let mut items = items.into_iter().map(|item| item.as_ref().to_owned());
        self.backend.enqueue(stage, &mut items)
    }

    /// The numbers of those items whose units are pending, in order and each unit once, and how many other units
    /// the items name.
    pub fn pending(
        &self,
        stage: &str,
        items: impl IntoIterator<Item: AsRef<str>>,
    ) -> Result<(Vec<usize>, u64), RunError> {
        let mut items = items.into_iter().map(|item| item.as_ref().to_owned());
        self.backend.pending(stage, &mut items)
    }

    /// Reads all units of a stage, in item order.
    pub fn units(&self, stage: &str) -> Result<Vec<Unit>, RunError> {
        self.backend.units(stage)
    }

    /// Reads the failures of all units, final or not, by stage and in item order.
    pub fn failures(&self) -> Result<Vec<UnitFailure>, RunError> {
        self.backend.failures()
    }

    /// Names of the stages that have units, sorted.
    pub fn stages(&self) -> Result<Vec<String>, RunError> {
        self.backend.stages()
    }

    /// Reads the outputs of a stage's done units, in item order.
    pub fn outputs<T: DeserializeOwned>(&self, stage: &str) -> Result<Vec<T>, RunError> {
        let mut outputs = Vec::new();
        self.each_output(stage, |_, output| {
            outputs.push(output);
            Ok(())
        })?;
        Ok(outputs)
    }

    /// Passes item and output of each done unit of a stage to `visit`, in item order and one at a time. `visit` must
    /// not use the journal.
    ///
    /// # Errors
    /// The journal cannot be read, an output does not parse, or `visit` fails.
    pub fn each_output<T: DeserializeOwned>(
        &self,
        stage: &str,
        mut visit: impl FnMut(&str, T) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        self.backend.each_output(stage, &mut |item, output| {
            visit(item, serde_json::from_str(output)?)
        })
    }

    /// Reads the output of a unit; `None` if it is not done.
    pub fn output<T: DeserializeOwned>(
        &self,
        stage: &str,
        item: &str,
    ) -> Result<Option<T>, RunError> {
        match self.backend.output(stage, item)? {
            Some(text) => Ok(Some(serde_json::from_str(&text)?)),
            None => Ok(None),
        }
    }

    /// Reads the outputs of these units, one at a time and in this order, and skips units that are not done.
    pub fn outputs_of<'a, T: DeserializeOwned + 'a>(
        &'a self,
        stage: &'a str,
        items: &'a [String],
    ) -> impl Iterator<Item = Result<T, RunError>> + 'a {
        items
            .iter()
            .filter_map(move |item| self.output(stage, item).transpose())
    }

    /// Leases a pending unit for `seconds`; `false` if it is done, failed, or leased by another worker.
    ///
    /// From then on, what this handle writes about the unit carries the number of the attempt: once another worker has
    /// leased the unit, it is refused with [`RunError::LeaseLost`].
    pub fn lease(&self, stage: &str, item: &str, now: i64, seconds: i64) -> Result<bool, RunError> {
        let number = self.backend.lease(stage, item, now, now + seconds)?;
        if let Some(number) = number {
            self.leased.insert(stage, item, number);
        }
        Ok(number.is_some())
    }

    /// End of the lease of a pending unit (Unix time in seconds); `None` if the unit is not pending.
    pub fn leased_until(&self, stage: &str, item: &str) -> Result<Option<i64>, RunError> {
        self.backend.leased_until(stage, item)
    }

    /// Moves the end of a lease from `from` to `to`; `false` if the lease is no longer held. A `to` of 0
    /// releases the unit.
    pub fn move_lease(
        &self,
        stage: &str,
        item: &str,
        from: i64,
        to: i64,
    ) -> Result<bool, RunError> {
        self.backend.move_lease(stage, item, from, to)
    }

    /// Commits the output of a unit, and deletes the steps recorded under the item's name: a trajectory has them.
    /// Committing again has no effect.
    ///
    /// # Errors
    /// [`RunError::LeaseLost`] if another worker has leased the unit since, and has not committed it.
    pub fn complete(&self, stage: &str, item: &str, output: &Value) -> Result<(), RunError> {
        self.ending(stage, item, |attempt| {
            self.backend
                .complete(stage, item, attempt, &output.to_string())
        })
    }

    /// Records a failure. `last` makes it final; otherwise the unit becomes pending again. A unit that is done stays done.
    ///
    /// # Errors
    /// As [`Journal::complete`].
    pub fn fail(
        &self,
        stage: &str,
        item: &str,
        failure: &Failure,
        last: bool,
    ) -> Result<(), RunError> {
        self.ending(stage, item, |attempt| {
            self.backend.fail(stage, item, attempt, failure, last)
        })
    }

    /// Ends the attempt that this handle has leased, if it has.
    fn ending(
        &self,
        stage: &str,
        item: &str,
        write: impl FnOnce(Option<Attempt<'_>>) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let attempt = self.leased.number(stage, item).map(|number| Attempt {
            stage,
            item,
            number,
        });
        let written = write(attempt);
        if matches!(written, Ok(()) | Err(RunError::LeaseLost(_))) {
            self.leased.remove(stage, item);
        }
        written
    }

    /// Makes failed units pending again, so that they are retried.
    pub fn retry_failed(&self, stage: &str, which: RetryFailed) -> Result<(), RunError> {
        self.backend.retry_failed(stage, which)
    }

    /// Makes those of these units that have failed pending again; their number.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub fn retry_items(&self, stage: &str, items: &[String]) -> Result<u64, RunError> {
        self.backend.retry_items(stage, items)
    }

    /// Counts a stage's units by state.
    pub fn summary(&self, stage: &str) -> Result<StageSummary, RunError> {
        self.backend.summary(stage)
    }

    /// Number of a stage's units that a process works on.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn count_leased(&self, stage: &str) -> Result<u64, RunError> {
        self.backend
            .count_leased(stage, self.backend.now_millis()? / 1000)
    }

    /// State of a unit; `None` if it was never enqueued.
    pub fn state(&self, stage: &str, item: &str) -> Result<Option<UnitState>, RunError> {
        self.backend.state(stage, item)
    }

    /// All units of a stage with their states, in item order.
    pub fn states(&self, stage: &str) -> Result<Vec<(String, UnitState)>, RunError> {
        self.backend.states(stage)
    }
}
