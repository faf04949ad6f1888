//! `pybench chat`: conversations with a model and a live interpreter (docs/chat.md).
//!
//! | module | content |
//! | --- | --- |
//! | [`entry`] | what is saved of a conversation: messages, replies, cells, files |
//! | [`transcript`] | the messages that the model reads, and what comes next |
//! | [`history`] | conversations in SQLite or PostgreSQL, and their files |
//! | [`settings`] | the agent, limits and task of a conversation |
//! | [`sandbox`] | what a sandbox may have if the cells of other people run in it |
//! | [`agents`] | the agents of a recipe, and the newest checkpoint |
//! | [`model`] | the model of a conversation |
//! | [`local_model`] | a model in the memory of this machine, which several can use |
//! | [`live`] | what happens while the model works, and how a person stops it |
//! | [`live_session`] | the interpreter of a conversation; restored by replay |
//! | [`conversation`] | a conversation that goes on |
//! | [`grade`] | a conversation about a task, checked like a trajectory |
//! | [`dataset`] | a conversation as a row of a dataset |
//! | [`export`] | a conversation as notebook, JSON or HTML |
//! | [`terminal`] | a conversation in the terminal |
//! | [`command`] | the arguments of `pybench chat` |

pub mod agents;
pub mod command;
pub mod conversation;
pub mod dataset;
pub mod entry;
pub mod export;
pub mod grade;
pub mod history;
pub mod live;
mod live_session;
pub mod local_model;
pub mod model;
pub mod sandbox;
pub mod settings;
mod terminal;
pub mod transcript;
