//! Time spent per stage, kept in the journal across restarts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Journal, RunError, RunFolder};

/// Interval at which the time of a stage is saved: the time that a `kill -9` can lose.
pub const SAVE_EVERY: Duration = Duration::from_secs(2);

/// The metadata key of a stage's time is `seconds/<stage>`.
pub(crate) const PREFIX: &str = "seconds/";

/// Measures the time of a stage until it is dropped, and adds it to the time of earlier processes.
#[derive(Debug)]
pub struct StageClock {
    folder: Arc<RunFolder>,
    key: String,
    before: f64,
    started: Instant,
}

impl StageClock {
    /// Starts the clock. Executors call this themselves; only stages without an executor need to.
    pub fn start(folder: Arc<RunFolder>, stage: &str) -> Result<Self, RunError> {
        let key = format!("{PREFIX}{stage}");
        let before = folder.journal().metadata(&key)?;
        Ok(Self {
            before: before.and_then(|value| value.as_f64()).unwrap_or(0.0),
            key,
            folder,
            started: Instant::now(),
        })
    }

    /// Writes the time so far to the journal.
    pub fn save(&self) -> Result<(), RunError> {
        let seconds = self.before + self.started.elapsed().as_secs_f64();
        self.folder
            .journal()
            .set_metadata(&self.key, &seconds.into())
    }
}

impl Drop for StageClock {
    fn drop(&mut self) {
        if let Err(error) = self.save() {
            tracing::warn!("cannot save the time of a stage: {error}");
        }
    }
}

/// Total time of all stages of a run, over all restarts.
///
/// # Errors
/// The journal cannot be read.
pub fn time_spent(journal: &Journal) -> Result<Duration, RunError> {
    let seconds: f64 = journal
        .metadata_with_prefix(PREFIX)?
        .iter()
        .filter_map(|(_, value)| value.as_f64())
        .sum();
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}
