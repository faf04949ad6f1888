//! Our own kernels for GPUs (`shim/kernels.cu`), which CUDA's run-time compiler builds for the GPU that is
//! there, and an emulation of them on a CPU, with which tests see what a GPU would compute.

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

/// Whether GPUs run the kernels: there is one, its compiler was found, and `PYBENCH_KERNELS` is not 0.
/// Says on standard error, once, what a GPU's compiler or driver had against it.
pub fn on_gpu() -> bool {
    // SAFETY: no arguments; the shim lets no exception out.
    unsafe { shim_gpu_kernels() != 0 }
}

/// Whether a tensor like this one is worked on by kernels, on this thread.
pub fn take(tensor: &Tensor) -> bool {
    match tensor.device() {
        Device::Cuda(_) => on_gpu(),
        Device::Cpu => emulating(),
        _ => false,
    }
}

/// Whether this thread emulates.
pub fn emulating() -> bool {
    // SAFETY: reads a flag of this thread.
    unsafe { shim_emulating() != 0 }
}

/// While it lives, this thread's tensors on the CPU go through the kernels, slowly.
#[derive(Debug)]
pub struct Emulation(PhantomData<*const ()>);

impl Emulation {
    /// Begins; it ends when the value is dropped, on the same thread.
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

/// Compiles the kernels with the NVRTC at that path for a compute capability (90 is an H100), without
/// a GPU; nothing is run. The error has the compiler's words.
pub fn compile(nvrtc: &Path, capability: i32) -> Result<(), TchError> {
    let path = CString::new(nvrtc.as_os_str().as_encoded_bytes())
        .map_err(|_| TchError::Torch("a path with a zero byte".into()))?;
    // SAFETY: the path is a C string that outlives the call.
    check(unsafe { shim_compile_kernels(path.as_ptr(), capability) })
}

/// A moment of AdamW as the kernel takes it.
#[derive(Clone, Copy, Debug)]
pub enum MomentParts<'a> {
    /// Float32.
    Whole(&'a Tensor),
    /// One byte an element, a float32 scale for 256 of them, the 256 levels in order.
    Blocks {
        /// Uint8 `[elements]`.
        codes: &'a Tensor,
        /// Float32.
        scales: &'a Tensor,
        /// Float32 `[256]`.
        levels: &'a Tensor,
    },
}

impl MomentParts<'_> {
    fn raw(self) -> [Raw; 3] {
        match self {
            Self::Whole(values) => [values.as_ptr() as Raw, null_mut(), null_mut()],
            Self::Blocks {
                codes,
                scales,
                levels,
            } => [codes, scales, levels].map(|tensor| tensor.as_ptr() as Raw),
        }
    }
}

/// How weights in bf16 are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// To the nearest.
    Nearest,
    /// Up or down with the odds that make the mean right. `seed` is not negative.
    Random {
        /// Of this step.
        seed: i64,
        /// Where the first element lies in its parameter.
        place: i64,
    },
}

/// What one step works on: flat tensors of equal length.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Float32 or bf16.
    pub weight: &'a Tensor,
    /// Float32 or bf16.
    pub gradient: &'a Tensor,
    /// The exact copy of `weight`, float32.
    pub master: Option<&'a Tensor>,
    /// First moment.
    pub first: MomentParts<'a>,
    /// Second moment, in whole or, in bytes, its root. Kept as the first is.
    pub second: MomentParts<'a>,
    /// A float32 that counts this update.
    pub count: &'a Tensor,
}

/// One AdamW step in one pass over memory.
pub fn adamw(piece: Piece<'_>, step: AdamStep, rounding: Rounding) -> Result<(), TchError> {
    let (seed, place) = match rounding {
        Rounding::Nearest => (-1, 0),
        Rounding::Random { seed, place } => (seed, place),
    };
    let raw = |tensor: &Tensor| tensor.as_ptr() as Raw;
    let (first, second) = (piece.first.raw(), piece.second.raw());
    // SAFETY: all tensors are alive; the shim checks kinds and lengths of weights and gradients.
    check(unsafe {
        shim_kernel_adamw(
            raw(piece.weight),
            raw(piece.gradient),
            piece.master.map_or(null_mut(), raw),
            &first,
            &second,
            raw(piece.count),
            step.rate,
            step.betas.0,
            step.betas.1,
            step.decay,
            step.epsilon,
            step.factor,
            seed,
            place,
        )
    })
}
