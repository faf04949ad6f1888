//! The trainer against transformers' values, against itself under other batching, and against `kill -9`.

mod bad_input;
mod batching;
mod kinds;
mod memory;
mod parity;
mod run;
mod spike;
mod support;
mod together;
mod tokens;
