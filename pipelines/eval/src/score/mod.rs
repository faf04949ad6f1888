//! The score that tasks of several suites share: executable checks.

pub mod strict;
