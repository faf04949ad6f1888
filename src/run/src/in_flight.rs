//! What a run has in flight right now, for `pybench status` and progress lines.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::observer::report_stage;
use crate::requests::Bottleneck;
use crate::{Journal, RunError};

/// Metadata key in the journal.
const KEY: &str = "in_flight";
/// A running process writes the state more often than this; an older one is of a process that has ended.
const MAX_AGE_SECONDS: i64 = 10;

/// Work in flight at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight {
    pub stage: String,
    /// Units that were started and have not ended.
    pub units: usize,
    /// Requests that were sent to a model and are not answered.
    pub requests: usize,
    /// What keeps further units from starting; `None` if all have started.
    pub limited_by: Option<Bottleneck>,
}

#[derive(Serialize, Deserialize)]
struct Recorded {
    #[serde(flatten)]
    state: InFlight,
    /// Unix time in seconds, by the clock of the journal.
    at: i64,
}

impl InFlight {
    /// Records this state in the journal.
    ///
    /// # Errors
    /// The journal cannot be written.
    pub(crate) fn record(&self, journal: &Journal) -> Result<(), RunError> {
        report_stage(&self.stage, self.units, journal);
        let recorded = Recorded {
            state: self.clone(),
            at: journal.now_millis()? / 1000,
        };
        journal.set_metadata(KEY, &serde_json::to_value(recorded)?)
    }

    /// The state of the process that works on the run; `None` if none does.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn of(journal: &Journal) -> Result<Option<Self>, RunError> {
        let Some(value) = journal.metadata(KEY)? else {
            return Ok(None);
        };
        let Ok(recorded) = serde_json::from_value::<Recorded>(value) else {
            return Ok(None);
        };
        let age = (journal.now_millis()? / 1000).saturating_sub(recorded.at);
        let fresh = age <= MAX_AGE_SECONDS;
        Ok((fresh && recorded.state.units > 0).then_some(recorded.state))
    }
}

/// `requests in flight: 33, limited by the endpoint`.
impl fmt::Display for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "requests in flight: {}", self.requests)?;
        match self.limited_by {
            Some(why) => write!(f, ", limited by {}", why.describe()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunFolder;

    #[test]
    fn only_the_state_of_a_running_process_is_shown() {
        let root = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(root.path(), "").unwrap();
        let journal = folder.journal();
        assert_eq!(InFlight::of(journal).unwrap(), None);
        let state = InFlight {
            stage: "rollout".to_owned(),
            units: 37,
            requests: 33,
            limited_by: Some(Bottleneck::Endpoint),
        };
        state.record(journal).unwrap();
        assert_eq!(InFlight::of(journal).unwrap(), Some(state.clone()));
        let text = "requests in flight: 33, limited by the endpoint";
        assert_eq!(state.to_string(), text);
        let old = Recorded { state, at: 1 };
        let old = serde_json::to_value(old).unwrap();
        journal.set_metadata(KEY, &old).unwrap();
        assert_eq!(InFlight::of(journal).unwrap(), None);
    }
}
