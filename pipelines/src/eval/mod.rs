//! `eval`: PyBench, measured. Records of attempts go in; statistics, verdicts of a judge and a report
//! come out.
//!
//! [`record`] is what the halves share: loader, runner, scores and audit write records; statistics,
//! judge and report read them and know nothing else of a run.

pub mod after;
pub mod agent;
pub mod audit;
pub(crate) mod bare;
pub mod bench;
pub mod command;
pub mod endpoint;
pub mod general;
pub mod judge;
mod lines;
pub mod record;
pub mod report;
pub mod run;
pub mod score;
pub mod stats;
mod terminal;

pub use lines::FileError;
