//! A run: its recipe, its folder, its journal, and the executor that does its work.

pub mod cli;
#[cfg(test)]
pub(crate) mod conformance;
mod context;
mod error;
mod executor;
mod folder;
mod interrupt;
mod journal;
pub mod local;
pub mod log;
pub mod progress;
pub mod project;
mod recipe;

pub use context::{Mode, RunContext, default_cache_dir};
pub use error::{ExitCode, RunError};
pub use executor::{Executor, Failure, FailureKind, Stage, StageSummary, Unit, UnitState};
pub(crate) use folder::write_atomically;
pub use folder::{ContentStore, RunFolder, lock_within};
pub use interrupt::{Interrupt, Urgency};
pub use journal::{
    Awaited, Batch, BudgetCap, Call, CallState, Event, Journal, Note, Reservation, ReserveError,
    RetryFailed, Spent, UnitFailure,
};
pub use local::{ExecutorOptions, LocalExecutor, StageClock, cores};
pub use progress::{Progress, StageProgress};
pub use recipe::*;

/// The word closest to a mistyped one, if any is close enough to suggest.
pub fn closest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |candidate: &str| strsim::osa_distance(word, candidate);
    words
        .into_iter()
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.chars().count() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
