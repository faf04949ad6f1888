//! Evaluation of agents on PyBench and other suites.
//!
//! The work has two halves that share only the file of records ([`record`]): [`suite`],
//! [`suites`], [`run`] and [`score`] run agents and write records; [`stats`], [`judge`], [`contamination`],
//! [`report`] and [`card`] read records and turn them into statistics, judge verdicts, a report and model cards.

pub mod agent;
mod audit_page;
pub mod card;
pub mod command;
pub mod contamination;
pub mod endpoint;
mod file_error;
mod inspect_export;
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
