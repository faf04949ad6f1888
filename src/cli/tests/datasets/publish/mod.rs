//! `pybench-publish` against a Hub on the loopback: what it sends, what it does not send again, and what it
//! leaves behind when something goes wrong, which is the old state or the new one; and what others get of it.

#![allow(unreachable_pub)]

mod back;
mod checks;
pub(crate) mod fixture;
pub(crate) mod hub;
mod interrupted;
mod models;
mod quickstart;
mod refusals;
mod sending;
mod xet;
