//! Conversion from and to GGUF, the format of llama.cpp.

mod convert;
mod export;
mod reader;
mod writer;

pub use convert::convert;
pub use export::{GgufType, export};
pub use reader::{Gguf, GgufError, GgufValue, TensorInfo};
