//! Attempts to break out, in every tier that runs here.

#![allow(clippy::duplicate_mod)] // the same cases, once per tier

#[path = "cases.rs"]
mod bwrap;
#[path = "cases.rs"]
mod jail;
#[path = "../support/mod.rs"]
mod support;
mod targets;
