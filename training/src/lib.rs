//! The trainer of pybench: Llama-family models on libtorch, from a laptop's CPU to a GPU.

pub mod catalogue;
pub mod command;
pub mod data;
pub mod gguf;
pub mod model;
pub mod probe;
pub mod serve;
pub mod torch;
pub mod train;
