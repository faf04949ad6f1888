//! Composed tasks as part of a run, and the command that proves them.

pub mod audit;
pub mod command;
mod diversity;
mod draws;
mod imprecise;
mod in_parallel;
mod pairs;
mod rounds;
pub(crate) mod stage;
