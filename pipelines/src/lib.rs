//! The data stages of pybench, one module each. Stages never call each other: each reads the
//! artefacts of the stage before it from the run folder and writes its own.

pub mod crawl;
pub mod dataset;
pub mod embedded;
pub mod eval;
pub mod goal;
pub mod grade;
pub mod hub;
pub mod library;
pub mod notebook;
mod program;
pub mod publish;
pub mod query;
pub mod rollout;
pub mod shard;
pub mod show;
pub mod stats;
pub mod status;
pub mod synthesize;
#[cfg(test)]
#[path = "../../tests/support/program.rs"]
mod test_program;
pub mod verify;
