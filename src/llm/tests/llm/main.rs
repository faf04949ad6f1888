//! Chat models and embedders against loopback endpoints.

mod batch;
mod embeddings;
mod endpoint;
