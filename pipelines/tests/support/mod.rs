//! What the tests of whole runs share.

#![allow(unreachable_pub)]

pub mod endpoint;
pub mod place;
