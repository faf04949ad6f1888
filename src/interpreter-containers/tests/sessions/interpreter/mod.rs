//! The interpreter as its users see it, in every tier that runs here.
#[path = "cases.rs"]
mod bwrap;
#[path = "cases.rs"]
mod jail;
