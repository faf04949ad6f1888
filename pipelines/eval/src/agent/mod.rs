//! Agents that can be evaluated: configurations of models, model servers, scripts and a person.

pub mod config;
mod format;
mod human;
mod scripted;
mod single_reply;
mod yaml;

pub use format::UpstreamFormat;
pub use human::HumanAgent;
pub use scripted::{Script, ScriptedAgent, answer, lenient_answer};
pub use single_reply::SingleReplyFormat;
