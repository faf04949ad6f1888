//! What a run is planned for: a kind of device, and a number of processes.

use tch::Device;

use crate::torch::kernels;
use crate::train::machine;

/// Main memory that libtorch needs once it computes: code, threads, buffers. Measured.
pub(super) const LIBTORCH_BYTES: u64 = 48 << 20;
/// Main memory of a process that uses a GPU: CUDA's libraries and their kernels. Measured on an H100, 0.99 GiB.
const CUDA_HOST_BYTES: u64 = 1 << 30;
/// Memory of a GPU before any tensor exists: CUDA's context and the workspace of cuBLAS. Assumed, not measured.
const CUDA_CONTEXT_BYTES: u64 = 640 << 20;

/// The devices and processes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanTarget {
    pub device: Device,
    /// Processes of the run; each has a GPU if there are any.
    pub processes: usize,
    /// Those of them that share the memory of one machine.
    pub processes_per_machine: usize,
    /// Whether the fused operations are used on the device.
    pub fused: bool,
    /// Whether it is this machine, whose memory is the limit.
    pub(super) is_here: bool,
    /// Main memory of a process before it loads the model.
    pub(super) host_base: u64,
}

impl PlanTarget {
    /// The device that this process trains on.
    pub fn here(device: Device, processes: usize) -> Self {
        match device {
            Device::Cuda(_) => Self {
                device,
                processes_per_machine: machine::local_processes(processes),
                fused: kernels::on_gpu(),
                is_here: true,
                ..Self::gpus(processes)
            },
            _ => Self::cpu(processes),
        }
    }

    /// Processes on the CPU of this machine.
    pub fn cpu(processes: usize) -> Self {
        Self {
            device: Device::Cpu,
            processes_per_machine: machine::local_processes(processes),
            is_here: true,
            host_base: machine::resident().unwrap_or(0) + LIBTORCH_BYTES,
            ..Self::gpus(processes)
        }
    }

    /// Processes with a GPU each, in one machine that is not this one.
    pub fn gpus(processes: usize) -> Self {
        Self {
            device: Device::Cuda(0),
            processes: processes.max(1),
            processes_per_machine: processes.max(1),
            fused: true,
            is_here: false,
            host_base: CUDA_HOST_BYTES,
        }
    }

    /// A single process on the same kind of device.
    pub(super) fn alone(&self) -> Self {
        Self {
            processes: 1,
            processes_per_machine: 1,
            ..*self
        }
    }

    /// Memory of the device before the model is loaded.
    pub(super) fn device_base(&self) -> u64 {
        match self.device {
            Device::Cuda(_) => CUDA_CONTEXT_BYTES,
            _ => self.host_base,
        }
    }

    pub(in crate::train) fn is_gpu(&self) -> bool {
        matches!(self.device, Device::Cuda(_))
    }
}
