//! Who is evaluated: models behind endpoints, and for comparison scripts and a person.

pub mod config;
mod format;
mod human;
mod scripted;
mod yaml;

pub use format::UpstreamFormat;
pub use human::Human;
pub use scripted::{Script, Scripted};
