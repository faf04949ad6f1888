//! Tests of the library and of the binary `pybench-train`: against values of transformers, against itself under
//! other batching, and against `kill -9`.

mod adapters;
mod bad_input;
mod batching;
mod cache;
mod code_interpreter;
mod dpo;
mod exit_codes;
mod fused;
mod gguf;
mod hub;
mod in_backward;
mod inference;
mod installed;
mod kernels;
mod loss_spike;
mod memory;
mod parity;
mod precision;
mod preflight;
mod processes;
mod pyllama3;
mod remote_run;
mod run;
mod serving;
mod smollm2;
mod sources;
mod support;
mod tokens;
mod tool_calls;
