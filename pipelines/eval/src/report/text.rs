//! Formatting of text and numbers.

pub(crate) use pybench_types::text::{line, percent, visible};
