//! The trainer against transformers' values, against itself under other batching, and against `kill -9`.

mod bad_input;
mod batching;
mod hub;
mod parity;
mod preflight;
mod run;
mod sources;
mod stages;
mod support;
mod tokens;
