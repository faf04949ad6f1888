//! The cells that a session has run, so that it can be forked by replaying them.

use pybench_types::observation::Observation;

/// The cells run so far, for replay.
#[derive(Clone, Default)]
pub(super) struct CellHistory {
    pub(super) cells: Vec<RecordedCell>,
    /// Why replay would not reproduce the state.
    pub(super) invalid: Option<String>,
}

#[derive(Clone)]
pub(super) struct RecordedCell {
    pub(super) code: String,
    /// Digest of the observation, which itself may be large.
    pub(super) observation_digest: blake3::Hash,
}

impl CellHistory {
    /// Appends a cell and its observation.
    pub(super) fn record(&mut self, code: &str, observation: &Observation) {
        if let Some(stopped) = observation.stopped {
            let number = self.cells.len() + 1;
            let why = format!("cell {number} was stopped ({stopped:?}), which cannot be repeated");
            self.invalid.get_or_insert(why);
        }
        self.cells.push(RecordedCell {
            code: code.to_owned(),
            observation_digest: digest(observation),
        });
    }

    /// Marks the history as not replayable.
    pub(super) fn invalidate(&mut self, why: &str) {
        self.invalid.get_or_insert(why.to_owned());
    }
}

pub(super) fn digest(observation: &Observation) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    // Cannot fail: writing to a hasher does not, and an observation has only string keys.
    let _ = serde_json::to_writer(&mut hasher, observation);
    hasher.finalize()
}
