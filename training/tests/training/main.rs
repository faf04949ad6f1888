//! The trainer against transformers' values, against itself under other batching, and against `kill -9`.

mod bad_input;
mod batching;
mod cache;
mod fused;
mod gguf;
mod hub;
mod jinja;
mod kernels;
mod kinds;
mod memory;
mod parity;
mod preflight;
#[path = "../../../tests/support/program.rs"]
mod program;
mod run;
mod serving;
mod smollm2;
mod sources;
mod spike;
mod stages;
mod support;
mod together;
mod tokens;
