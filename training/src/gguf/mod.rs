//! GGUF files (llama.cpp's format) as a source of weights.

mod blocks;
mod convert;
mod reader;

pub use convert::convert;
pub use reader::{Gguf, GgufError, TensorInfo, Value};
