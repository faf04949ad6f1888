//! What the tests of whole runs share.

#![allow(unreachable_pub)]

pub mod batches;
pub mod cast;
pub mod endpoint;
pub mod kill;
pub mod place;
