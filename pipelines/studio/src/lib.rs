//! `pybench studio`: runs and datasets in the browser.
//!
//! | module | what it has |
//! | --- | --- |
//! | [`index`] | the trajectories of a source in SQLite: pages, filters, search in full text |
//! | [`row`] | a trajectory as the list shows it, and as the page of one shows it |
//! | [`access`] | who may ask: the token of the opening link, then a cookie |
//! | [`api`] | the routes |
//! | [`command`] | the arguments, and what is opened |

mod access;
mod api;
mod assets;
pub mod command;
mod index;
mod row;
