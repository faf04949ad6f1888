//! What tests need of the machine: skips, Python environments made for tests, programs.

pub mod program;
pub mod python;
pub mod skip;
