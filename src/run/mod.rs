//! A run: its recipe, its folder, its journal, and the executor that does its work.

pub mod cli;
mod context;
mod error;
mod executor;
mod folder;
mod interrupt;
mod journal;
pub mod local;
pub mod progress;
mod recipe;

pub use context::{Mode, RunContext, default_cache_dir};
pub use error::{ExitCode, RunError};
pub use executor::{Executor, Failure, FailureKind, Stage, StageSummary, Unit, UnitState};
pub use folder::{ContentStore, RunFolder};
pub use interrupt::{Interrupt, Urgency};
pub use journal::{
    BudgetCap, Call, CallState, Event, Journal, Reservation, ReserveError, RetryFailed, Spent,
};
pub use local::{ExecutorOptions, LocalExecutor, StageClock};
pub use progress::{Progress, StageProgress};
pub use recipe::*;
