//! The journal in each database, and the servers themselves.

mod cut;
mod journal;
mod places;
mod servers;
mod store;
mod workers;
