//! Grading: check specifications, the checker that evaluates them in a fresh sandbox, verdicts.

mod spec;

pub use spec::{CheckSpec, Metric, PlotKind, RowOrder};
