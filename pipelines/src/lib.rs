//! The data stages of pybench, one module each. Stages never call each other: each reads the
//! artefacts of the stage before it from the run folder and writes its own.

pub mod crawl;
pub mod dataset;
pub mod eval;
pub mod grade;
pub mod library;
pub mod query;
pub mod rollout;
pub mod shard;
pub mod status;
pub mod synthesize;
pub mod verify;
