//! Chat models against loopback endpoints.

mod batch;
mod endpoint;
