//! Who is evaluated: models behind endpoints, and for comparison scripts and a person.

pub mod config;
mod format;
mod human;
mod scripted;
pub mod served;
mod yaml;

pub use format::UpstreamFormat;
pub use human::Human;
pub use scripted::{Script, Scripted, answer, lenient_answer};
