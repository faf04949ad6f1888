//! GGUF files (llama.cpp's format) in, as a source of weights, and out.

mod blocks;
mod convert;
mod export;
mod reader;
mod writer;

pub use convert::convert;
pub use export::{Quantisation, export};
pub use reader::{Gguf, GgufError, TensorInfo, Value};
