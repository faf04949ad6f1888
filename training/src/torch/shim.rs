//! Safe wrappers of the C++ shim.

use std::ffi::{CStr, c_char, c_int};

use tch::{TchError, Tensor};
use torch_sys::C_tensor;

pub(super) type Raw = *mut C_tensor;

unsafe extern "C" {
    fn shim_error() -> *const c_char;
    fn shim_fused_adamw(
        params: *const Raw,
        grads: *const Raw,
        firsts: *const Raw,
        seconds: *const Raw,
        steps: *const Raw,
        count: c_int,
        rate: f64,
        beta1: f64,
        beta2: f64,
        decay: f64,
        epsilon: f64,
        factor: f64,
    ) -> c_int;
    fn shim_release(tensor: Raw) -> c_int;
    fn shim_allocate(tensor: Raw) -> c_int;
    fn shim_forget_gradient(tensor: Raw) -> c_int;
}

pub(super) fn check(code: c_int) -> Result<(), TchError> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the shim keeps the message of this thread's last error as a C string.
    let message = unsafe { CStr::from_ptr(shim_error()) };
    Err(TchError::Torch(message.to_string_lossy().into_owned()))
}

fn raw(tensors: &[Tensor]) -> Vec<Raw> {
    tensors
        .iter()
        .map(|tensor| tensor.as_ptr() as Raw)
        .collect()
}

/// Hyperparameters of one AdamW step.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    pub learning_rate: f64,
    pub betas: (f64, f64),
    pub weight_decay: f64,
    pub eps: f64,
    /// Gradients are multiplied by this first.
    pub gradient_scale: f64,
}

/// One AdamW step in place. `steps` are float32 scalars that already include this step. All slices have equal
/// length. Gradients may be modified.
pub fn fused_adamw(
    params: &[Tensor],
    grads: &[Tensor],
    firsts: &[Tensor],
    seconds: &[Tensor],
    steps: &[Tensor],
    step: AdamStep,
) -> Result<(), TchError> {
    let count = params.len();
    if [grads, firsts, seconds, steps]
        .iter()
        .any(|other| other.len() != count)
    {
        return Err(TchError::Torch("AdamW: lists of different lengths".into()));
    }
    // SAFETY: each list holds `count` live tensors, which outlive the call.
    check(unsafe {
        shim_fused_adamw(
            raw(params).as_ptr(),
            raw(grads).as_ptr(),
            raw(firsts).as_ptr(),
            raw(seconds).as_ptr(),
            raw(steps).as_ptr(),
            count as c_int,
            step.learning_rate,
            step.betas.0,
            step.betas.1,
            step.weight_decay,
            step.eps,
            step.gradient_scale,
        )
    })
}

/// Frees the storage of a tensor, which its views share. Shapes stay; nothing may read or write the data before
/// [`allocate`].
pub fn release(tensor: &Tensor) -> Result<(), TchError> {
    // SAFETY: the tensor is alive.
    check(unsafe { shim_release(tensor.as_ptr() as Raw) })
}

/// Allocates storage for a tensor that was [`release`]d. The values are undefined.
pub fn allocate(tensor: &Tensor) -> Result<(), TchError> {
    // SAFETY: the tensor is alive.
    check(unsafe { shim_allocate(tensor.as_ptr() as Raw) })
}

/// Frees the gradient of a tensor.
pub fn clear_gradient(tensor: &Tensor) -> Result<(), TchError> {
    // SAFETY: the tensor is alive.
    check(unsafe { shim_forget_gradient(tensor.as_ptr() as Raw) })
}
