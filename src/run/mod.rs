//! A run: its recipe, its folder, its journal, and the executor that does its work.

pub mod cli;
mod error;
mod executor;
mod folder;
mod journal;
pub mod local;
pub mod progress;
mod recipe;

pub use error::{ExitCode, RunError};
pub use executor::{Failure, FailureKind, Stage, StageSummary, Unit, UnitState};
pub use folder::{ContentStore, RunFolder};
pub use journal::{BudgetCap, Call, CallState, Event, Journal, Reservation, ReserveError, Spent};
pub use recipe::*;
