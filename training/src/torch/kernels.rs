//! Kernels for GPUs (`shim/kernels.cu`), compiled at run time by NVRTC, and an emulation on the CPU with which
//! tests check what a GPU computes.

use std::ffi::{CString, c_char, c_int};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::null_mut;

use tch::{Device, TchError, Tensor};

use super::AdamStep;
use super::shim::{Raw, check};

unsafe extern "C" {
    fn shim_gpu_kernels() -> c_int;
    fn shim_emulate(on: c_int);
    fn shim_emulating() -> c_int;
    fn shim_compile_kernels(compiler: *const c_char, capability: c_int) -> c_int;
    fn shim_kernel_adamw(
        weight: Raw,
        gradient: Raw,
        master: Raw,
        first: *const [Raw; 3],
        second: *const [Raw; 3],
        step: Raw,
        rate: f64,
        beta1: f64,
        beta2: f64,
        decay: f64,
        epsilon: f64,
        factor: f64,
        seed: i64,
        place: i64,
    ) -> c_int;
}

/// Whether kernels run on the GPU: a GPU and NVRTC exist, and `PYBENCH_KERNELS` is not 0. If the compiler or
/// driver fails, prints the reason on standard error once.
pub fn on_gpu() -> bool {
    // SAFETY: no arguments; the shim catches all exceptions.
    unsafe { shim_gpu_kernels() != 0 }
}

/// Whether kernels are used for tensors like this one, on this thread.
pub fn apply_to(tensor: &Tensor) -> bool {
    match tensor.device() {
        Device::Cuda(_) => on_gpu(),
        Device::Cpu => emulating(),
        _ => false,
    }
}

/// Whether this thread emulates the kernels.
pub fn emulating() -> bool {
    // SAFETY: reads a flag of this thread.
    unsafe { shim_emulating() != 0 }
}

/// While it exists, CPU tensors of this thread are processed by the emulated kernels, slowly.
#[derive(Debug)]
pub struct Emulation(PhantomData<*const ()>);

impl Emulation {
    /// The emulation ends when the value is dropped.
    pub fn begin() -> Self {
        // SAFETY: sets a flag of this thread.
        unsafe { shim_emulate(1) };
        Self(PhantomData)
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { shim_emulate(0) };
    }
}

/// Compiles the kernels with the NVRTC library at a path for a compute capability (90 is an H100). Needs no GPU.
/// The error contains the output of the compiler.
pub fn compile(nvrtc: &Path, capability: i32) -> Result<(), TchError> {
    let path = CString::new(nvrtc.as_os_str().as_encoded_bytes())
        .map_err(|_| TchError::Torch("the path contains a zero byte".into()))?;
    // SAFETY: the path is a C string that outlives the call.
    check(unsafe { shim_compile_kernels(path.as_ptr(), capability) })
}

/// One of both optimizer states of AdamW, as an argument of the kernel.
#[derive(Clone, Copy, Debug)]
pub enum StateParts<'a> {
    Float32(&'a Tensor),
    /// One byte per element, one float32 scale per 256 elements, and the 256 levels in order.
    Int8 {
        /// Uint8 `[elements]`.
        codes: &'a Tensor,
        /// Float32.
        scales: &'a Tensor,
        /// Float32 `[256]`.
        levels: &'a Tensor,
    },
}

impl StateParts<'_> {
    fn raw(self) -> [Raw; 3] {
        match self {
            Self::Float32(values) => [values.as_ptr() as Raw, null_mut(), null_mut()],
            Self::Int8 {
                codes,
                scales,
                levels,
            } => [codes, scales, levels].map(|tensor| tensor.as_ptr() as Raw),
        }
    }
}

/// Rounding of bf16 weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    Nearest,
    /// Up or down at random, so that the expected value is exact. `seed` is not negative.
    Stochastic {
        seed: i64,
        /// Index of the first element in its parameter.
        offset: i64,
    },
}

/// Arguments of one step: flat tensors of equal length.
#[derive(Clone, Copy, Debug)]
pub struct AdamWArgs<'a> {
    /// Float32 or bf16.
    pub weight: &'a Tensor,
    /// Float32 or bf16.
    pub gradient: &'a Tensor,
    /// Float32 master copy of `weight`.
    pub master: Option<&'a Tensor>,
    pub exp_avg: StateParts<'a>,
    /// In int8 the square root is stored.
    pub exp_avg_sq: StateParts<'a>,
    /// A float32 with the number of steps, this one included.
    pub step_count: &'a Tensor,
}

/// One AdamW step in one pass over memory.
pub fn adamw(args: AdamWArgs<'_>, step: AdamStep, rounding: Rounding) -> Result<(), TchError> {
    let (seed, offset) = match rounding {
        Rounding::Nearest => (-1, 0),
        Rounding::Stochastic { seed, offset } => (seed, offset),
    };
    let raw = |tensor: &Tensor| tensor.as_ptr() as Raw;
    let (first, second) = (args.exp_avg.raw(), args.exp_avg_sq.raw());
    // SAFETY: all tensors are alive; the shim checks kinds and lengths of weights and gradients.
    check(unsafe {
        shim_kernel_adamw(
            raw(args.weight),
            raw(args.gradient),
            args.master.map_or(null_mut(), raw),
            &first,
            &second,
            raw(args.step_count),
            step.learning_rate,
            step.betas.0,
            step.betas.1,
            step.weight_decay,
            step.eps,
            step.gradient_scale,
            seed,
            offset,
        )
    })
}
