//! Text as it can be shown.

pub(in crate::eval) use pybench::text::{line, markdown, percent, size, slug, visible};
