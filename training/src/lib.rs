//! Fine-tunes and serves Llama-family models on libtorch.

pub mod catalog;
pub mod command;
mod dependent_process;
pub mod exit;
pub mod gguf;
pub mod interrupt;
pub mod model;
pub mod probe;
mod random;
pub mod serve;
pub mod torch;
pub mod train;
