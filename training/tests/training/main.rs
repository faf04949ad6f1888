//! The trainer against transformers' values, against itself under other batching, and against `kill -9`.

mod bad_input;
mod batching;
mod parity;
mod run;
mod support;
mod tokens;
