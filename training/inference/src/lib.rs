//! Inference of Llama-family models on CPUs, for serving: packed weights, kernels for AVX-512, AVX2 and any other
//! processor, a paged key-value cache, and threads that stay within one forward pass from its start to its end.
//!
//! Every matrix product adds the terms of an output in the same order, whatever else is in the pass. The logits of a
//! sequence therefore depend on its tokens only, not on other sequences nor on how a prompt was divided.
//!
//! Loops over all numbers of a model's file or over all tokens of a vocabulary are here as well, since only this crate is compiled
//! for speed in every profile.

mod attention;
mod blocks;
mod cache;
mod finite;
mod format;
mod isa;
mod matrix;
mod model;
mod pool;
mod rows;
mod sampler;
mod shape;
mod shared;
mod tile;
mod weights;
mod words;

pub use blocks::BlockKind;
pub use cache::KvCache;
pub use finite::{Float, is_finite};
pub use format::Format;
pub use model::{Extension, Model};
pub use sampler::{Sampler, Sampling, log_probabilities};
pub use shape::Shape;
