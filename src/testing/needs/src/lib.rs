//! What tests need of the machine: skips, and Python environments made for tests.

pub mod python;
pub mod skip;
