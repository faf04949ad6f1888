//! Safe bindings to parts of libtorch that `tch` lacks: [`fused_adamw`], [`fused`] operations,
//! [`kernels`] for GPUs, [`release`] and [`allocate`] of storage, the [`Communicator`] over c10d.

mod communicator;
mod cuda;
mod floats;
pub mod fused;
pub mod kernels;
mod memory;
pub(crate) mod nf4;
mod shim;
mod threads;

pub use communicator::{Communicator, CommunicatorError};
pub use cuda::enable_cuda;
pub use floats::floats;
pub(crate) use memory::PinnedMemory;
pub use memory::{
    DeviceMemory, device_memory, keep_memory, release_device_memory, release_free_memory,
    reset_device_peak,
};
pub use shim::{AdamStep, allocate, clear_gradient, fused_adamw, release};
pub use threads::sleep_while_waiting;
