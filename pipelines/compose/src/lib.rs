//! Composed tasks: chains of operations drawn over a real file: a table, a text, a document, a picture or a sound.
//!
//! A template is learned by heart; a composition must be understood. Each operation brings its
//! wordings, its code in several idioms and its meaning in Rust (polars expressions on tables), which is the reference. A task is made
//! only if every step counts: without it, or with another argument, the result is another one.

mod alike;
pub mod argument;
pub mod code;
mod compose;
mod content;
mod document;
mod draw;
mod extraction;
mod file_typo;
mod frame;
mod graph;
pub mod guess;
mod imprecise;
mod inputs;
mod least_squares;
mod media;
mod messy;
pub mod misread;
mod model;
pub mod note;
mod office_file;
mod operation;
pub mod operations;
mod partners;
mod picture;
mod plan;
mod program;
pub mod prove;
mod raw_look;
pub mod reading;
mod rename;
mod rounding;
pub mod script;
pub mod slip;
mod sound;
mod source;
mod task;
mod wording;

pub use compose::{Composed, compose};
pub use content::{Content, Medium};
pub use document::{Document, Tables};
pub use file_typo::with_file_typo;
pub use frame::{Class, Frame, OtherTable};
pub use graph::{Graph, GraphError, Step};
pub use imprecise::imprecise;
pub use inputs::Joined;
pub use operation::{Operation, Order, Role};
pub use partners::{MAX_TABLES, Partner, TableKeys, partners};
pub use picture::Picture;
pub use plan::{Plan, PlanError};
pub use sound::Sound;
pub use task::{Made, TaskSeed, make, make_joined, media_of};
pub use wording::is_wording;

#[cfg(test)]
mod tests;
