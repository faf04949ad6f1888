//! The journal in each database, and the servers themselves.

mod cut;
mod executor;
mod journal;
mod moves;
mod places;
mod scaling;
mod servers;
mod store;
mod tls;
mod workers;
