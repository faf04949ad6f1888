//! What of libtorch `tch` lacks, behind safe functions: [`fused_adamw`], [`recompute`], [`fused`]
//! operations, storage that comes and goes, [`Group`]s of processes, CUDA at run time.

mod cuda;
pub mod fused;
mod group;
mod memory;
mod shim;

pub use cuda::enable_cuda;
pub use group::{Group, GroupError};
pub use memory::keep_memory;
pub use shim::{AdamStep, Pass, allocate, forget_gradient, fused_adamw, recompute, release};
