//! Grading: check specifications, the checker that evaluates them in a fresh sandbox, verdicts.

mod checker;
mod foreign;
mod sources;
mod spec;

pub use checker::{Candidate, CheckError, Checker, Claim};
pub use spec::{CheckSpec, Metric, PlotKind, RowOrder};
