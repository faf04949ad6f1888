//! The trainer against transformers' values, against itself under other batching, and against `kill -9`.

mod bad_input;
mod batching;
mod cache;
mod gguf;
mod jinja;
mod parity;
mod run;
mod serving;
mod support;
mod tokens;
