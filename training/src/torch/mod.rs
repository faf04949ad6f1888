//! What of libtorch `tch` lacks, behind safe functions: [`fused_adamw`], [`recompute`], CUDA at run
//! time.

mod cuda;
mod shim;

pub use cuda::enable_cuda;
pub use shim::{AdamStep, fused_adamw, recompute};
