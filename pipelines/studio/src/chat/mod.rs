//! Conversations with a model and a live interpreter (`pybench_chat`), for pages.
//!
//! | module | content |
//! | --- | --- |
//! | [`view`] | a conversation as its page shows it |
//! | [`open_chat`] | one conversation that is open: its session, what it does |
//! | [`chats`] | all conversations that are open, and those that were saved |
//! | [`topic`] | what a conversation is about: the task of a trajectory |
//! | [`routes`] | the routes |
//! | [`previews`] | the routes that show files of the session |

pub(crate) mod chats;
pub(crate) mod open_chat;
pub(crate) mod previews;
pub(crate) mod routes;
#[cfg(test)]
mod tests;
mod topic;
pub(crate) mod view;
