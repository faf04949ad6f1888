//! Inference of Llama-family models on CPUs, for serving: packed weights, kernels for AVX-512, AVX2 and any other
//! processor, a paged key-value cache, and threads that stay within one forward pass from its start to its end.
//!
//! Every matrix product adds the terms of an output in the same order, whatever else is in the pass. The logits of a
//! sequence therefore depend on its tokens only, not on other sequences nor on how a prompt was divided.

mod attention;
mod cache;
mod format;
mod isa;
mod matrix;
mod model;
mod pool;
mod rows;
mod shape;
mod shared;
mod tile;
mod weights;
mod words;

pub use cache::KvCache;
pub use format::Format;
pub use model::{Extension, Model};
pub use rows::{argmax, exp_weights};
pub use shape::Shape;
