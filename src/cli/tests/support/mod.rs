//! What the tests of whole runs share.

#![allow(dead_code, unused_imports, unreachable_pub)] // each test binary uses a part of it

pub mod cast;
pub mod fixture;

use std::process::Command;

pub use pybench_testing::{batches, endpoint, kill};

/// The program.
pub const PYBENCH: &str = env!("CARGO_BIN_EXE_pybench");

pub fn pybench(command: &str) -> Command {
    let mut program = Command::new(PYBENCH);
    program.arg(command);
    program
}
