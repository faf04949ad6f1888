//! Helpers that tests share; nothing here is part of the product.

pub mod batches;
pub mod benchmark;
pub mod endpoint;
pub mod faults;
pub mod files;
pub mod kill;
pub mod load_dataset;
pub mod named_stage;
pub mod podman;
pub mod postgres;
pub mod rows;
pub mod s3;
pub mod sessions;
pub mod task;
pub mod temporal;

pub use pybench_test_needs::{program, python, skip};

/// The root of the workspace.
pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
