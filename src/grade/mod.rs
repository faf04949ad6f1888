//! Grading: check specifications, the checker that evaluates them in a fresh sandbox, verdicts.

mod checker;
mod foreign;
mod sources;
mod spec;

pub use checker::{Candidate, CheckError, Checker, Claim, checker_sources, checker_task};
pub use spec::{CheckSpec, Metric, PlotKind, RowOrder};
