//! Colors of the terminal.

pub(super) const CODE: &str = "\x1b[36m";
pub(super) const DIM: &str = "\x1b[2m";
pub(super) const WARNING: &str = "\x1b[33m";
pub(super) const ERROR: &str = "\x1b[31m";
pub(super) const RESET: &str = "\x1b[0m";
