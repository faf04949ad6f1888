//! Runs: recipe, run folder, journal, and the executor that processes units of work.

mod artifact_names;
pub mod artifacts;
mod blocking;
mod boot_clock;
mod bucket_run;
pub mod cli;
#[cfg(test)]
pub(crate) mod conformance;
mod content_store;
mod context;
mod error;
mod executor;
mod folded_log;
mod folder;
mod frozen_recipe;
pub mod human_edits;
mod in_flight;
mod interrupt;
mod journal;
pub mod left_out_tasks;
pub mod local;
pub mod log;
pub mod observer;
mod open_files;
mod pace;
mod pending_items;
mod price;
pub mod program;
pub mod progress;
pub mod project;
mod recipe;
pub mod relocate;
mod replace;
mod requests;
mod run_copy;
pub mod run_selection;
pub mod shared;
mod shipped;
mod store;
mod turns;

pub use artifact_names::POINTERS;
pub use blocking::waiting;
pub use bucket_run::keep_copies;
pub use content_store::ContentStore;
pub use context::{Mode, RunContext};
pub use error::RunError;
pub use executor::{
    Executor, Failure, FailureKind, Items, Stage, StageSummary, Unit, UnitState,
    interpreter_failure,
};
pub use folded_log::FoldedLog;
pub use folder::{RunFolder, lock_within};
pub use frozen_recipe::{WhenChanged, recipe_values};
pub use in_flight::InFlight;
pub use interrupt::{Interrupt, Urgency};
pub use journal::{
    Batch, BatchRequest, BudgetCap, Call, CallState, Event, Journal, JournalSize, LeasedOffer,
    OfferCounts, PendingCall, PostgresServer, PostgresTables, Profile, Reservation, ReserveError,
    RetryFailed, RunQueue, Spent, SqlRow, SqlTransaction, SqlValue, TRAJECTORY_REVIEWS,
    TemporalServer, UnitFailure, WorkerSettings,
};
pub use local::{ExecutorOptions, LocalExecutor, SAVE_EVERY, StageClock, cores, time_spent};
pub use pace::Pace;
pub use price::Price;
pub use progress::{Progress, StageProgress};
pub use pybench_interpreter::default_cache_dir;
pub use pybench_types::exit_code::ExitCode;
pub use recipe::*;
pub use replace::{NewFile, NewFolder, replace_file, write_atomically, write_output};
pub use requests::{Bottleneck, RequestCounts, RequestGuard, Requests};
pub use run_copy::files_at;
pub use shared::SharedExecutor;
pub use store::{
    BucketStore, ExpectedFile, FolderStore, ObjectServer, Store, StoreKind, local_copy,
    local_copy_of,
};
pub use turns::Turns;

/// The word that a mistyped one most likely means, if any is close enough to suggest.
pub fn closest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |candidate: &str| strsim::osa_distance(word, candidate);
    words
        .into_iter()
        .map(|candidate| (distance(candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.chars().count() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}
