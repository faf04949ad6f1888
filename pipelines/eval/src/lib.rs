//! Evaluation of agents on PyBench and other suites.
//!
//! The work has two halves that share only the file of records ([`record`]): [`suite`],
//! [`suites`], [`run`], [`score`] and [`general`] run agents and write records; [`stats`], [`judge`],
//! [`contamination`] and [`report`] read records and turn them into statistics, judge verdicts and a report.

pub mod agent;
pub mod command;
pub mod contamination;
pub mod endpoint;
mod file_error;
pub mod general;
pub mod judge;
pub mod judge_and_report;
pub mod record;
pub mod report;
pub mod run;
pub mod score;
pub mod stats;
pub mod status;
pub mod suite;
pub mod suites;
mod terminal;

pub use file_error::FileError;
