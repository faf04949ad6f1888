//! Seconds spent per stage, kept in the journal over restarts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::run::{Journal, RunError, RunFolder};

/// How much of a stage's time a `kill -9` may hide.
pub(super) const SAVE_EVERY: Duration = Duration::from_secs(2);

/// Facts `seconds/<stage>` hold the time of each stage.
pub(crate) const PREFIX: &str = "seconds/";

/// Counts the time of a stage from its start until it is dropped, on top of earlier processes.
#[derive(Debug)]
pub struct StageClock {
    folder: Arc<RunFolder>,
    key: String,
    before: f64,
    started: Instant,
}

impl StageClock {
    /// Start counting. Executors do so themselves; stages that use none count here.
    pub fn start(folder: Arc<RunFolder>, stage: &str) -> Result<Self, RunError> {
        let key = format!("{PREFIX}{stage}");
        let before = folder.journal().fact(&key)?;
        Ok(Self {
            before: before.and_then(|value| value.as_f64()).unwrap_or(0.0),
            key,
            folder,
            started: Instant::now(),
        })
    }

    /// Write the time so far to the journal.
    pub fn save(&self) -> Result<(), RunError> {
        let seconds = self.before + self.started.elapsed().as_secs_f64();
        self.folder.journal().set_fact(&self.key, &seconds.into())
    }
}

impl Drop for StageClock {
    fn drop(&mut self) {
        if let Err(error) = self.save() {
            tracing::warn!("the time of a stage could not be saved: {error}");
        }
    }
}

/// Time of all stages together.
pub(super) fn spent(journal: &Journal) -> Result<Duration, RunError> {
    let seconds: f64 = journal
        .facts(PREFIX)?
        .iter()
        .filter_map(|(_, value)| value.as_f64())
        .sum();
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}
