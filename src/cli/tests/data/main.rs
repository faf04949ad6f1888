//! Sources, profiles and the task library, by the whole program.

mod crawl;
mod library;
#[path = "../support/mod.rs"]
mod support;
