//! Text as it can be shown.

pub(in crate::eval) use pybench::text::{escape, line, markdown, percent, size, slug, visible};
