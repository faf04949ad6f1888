//! `pybench studio`: runs and datasets in the browser (docs/studio.md).
//!
//! | module | content |
//! | --- | --- |
//! | [`record`] | a trajectory, attempt or row, as the index keeps it |
//! | [`evaluation`] | the attempts of an evaluation, as records |
//! | [`row`] | its line in the list |
//! | [`view`] | its page: turns, outputs, files, verdict |
//! | [`align`] | two trajectories side by side: what differs in each turn |
//! | [`compare`] | two runs on the same tasks: what each solves |
//! | [`review`] | decisions of people, in the journal of the run; agreement |
//! | [`chat`] | conversations with a model and a live interpreter |
//! | [`interpreters`] | the interpreters of edits and conversations |
//! | [`edit`] | a turn of a trajectory edited, run again, checked and saved |
//! | [`saved_edits`] | edited trajectories in the journal of the run |
//! | [`file_types`] | which files browsers may show, and as what |
//! | [`search`] | what a person types, as a condition of SQLite's full-text search |
//! | [`index`] | the trajectories of a source in SQLite: pages, filters, search |
//! | [`runs`] | the list of runs: state, counts, cost |
//! | [`sources`] | what is open, and its index |
//! | [`access`] | who may ask: the token of the opening link, then a cookie |
//! | [`assets`] | the web app |
//! | [`handlers`] | what the routes share |
//! | [`api`] | the routes |
//! | [`command`] | the arguments |

mod access;
mod align;
mod api;
mod assets;
mod chat;
pub mod command;
mod compare;
mod edit;
mod evaluation;
mod file_types;
mod handlers;
mod index;
mod interpreters;
mod record;
mod review;
mod row;
mod runs;
mod saved_edits;
mod search;
mod sources;
#[cfg(test)]
mod types;
mod view;
