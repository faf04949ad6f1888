//! Editing a turn of a recorded trajectory and continuing from it.
//!
//! | module | content |
//! | --- | --- |
//! | [`written`] | turns as people write them, and the replies that they become |
//! | [`model_replies`] | the replies of models, on the disk |
//! | [`models`] | the models that can continue an edit |
//! | [`continuation`] | a model that writes the next turns, within limits |
//! | [`conversation`] | a person in the place of the model, or a model by order of the person |
//! | [`session`] | its session, and copies of it that other tries begin with |
//! | [`drafts`] | turns that are not saved, on the disk |
//! | [`old_files`] | drafts and replies that nobody needs any more |
//! | [`subject`] | the recorded trajectory, found with its task and its files |
//! | [`plan`] | what is edited: the recorded trajectory, its task, its session |
//! | [`fork`] | one edit that is open: its session, its turns, its verdict |
//! | [`forks`] | all edits that are open |
//! | [`routes`] | the routes |

pub(crate) mod continuation;
pub(crate) mod conversation;
pub(crate) mod drafts;
pub(crate) mod fork;
pub(crate) mod forks;
pub(crate) mod model_replies;
pub(crate) mod models;
mod old_files;
pub(crate) mod plan;
pub(crate) mod routes;
pub(crate) mod session;
pub(crate) mod subject;
#[cfg(test)]
mod tests;
pub(crate) mod written;
