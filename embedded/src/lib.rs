//! A GGUF model in a process of its own.
//!
//! The process gets a file and no environment, so it holds no keys. It reads requests from its standard input
//! and writes answers to its standard output, one line of JSON each. The first line that it writes is a
//! [`Hello`]. The line [`STOP_LINE`] withdraws a request. This crate defines that protocol; with the feature
//! `embedded` it also builds the program, which runs the model with llama.cpp.

#[cfg(feature = "embedded")]
pub mod engine;
#[cfg(feature = "embedded")]
mod prompt;
mod protocol;
pub mod reply_stream;
#[cfg(feature = "embedded")]
mod slots;

pub use protocol::{Answer, Ask, Hello, MAX_LINE_BYTES, Message, Reply, STOP_LINE};
