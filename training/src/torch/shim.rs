//! Safe wrappers of the C++ shim.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use tch::{Kind, TchError, Tensor};
use torch_sys::C_tensor;

pub(super) type Raw = *mut C_tensor;
type BlockDone = extern "C" fn(*mut c_void, c_int) -> c_int;
type BlockRun = extern "C" fn(*mut c_void, Raw) -> Raw;
type BlockDrop = extern "C" fn(*mut c_void);

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
    fn shim_recompute(
        input: Raw,
        anchor: Raw,
        run: BlockRun,
        done: BlockDone,
        drop: BlockDrop,
        user: *mut c_void,
        output: *mut Raw,
    ) -> c_int;
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

/// The pass of a recomputed block that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The forward pass, without an autograd graph.
    Forward,
    /// The recomputation with its backward pass; the gradients of the parameters exist.
    Backward,
}

/// Gradient checkpointing: applies `block` to `input` and saves only the input. The block runs again in the
/// backward pass, on another thread, and must give the same result. `done` is called after each pass.
pub fn recompute(
    input: &Tensor,
    block: impl Fn(&Tensor) -> Tensor + Send + 'static,
    done: impl Fn(Pass) -> Result<(), TchError> + Send + 'static,
) -> Result<Tensor, TchError> {
    let anchor = Tensor::zeros([], (Kind::Float, input.device())).set_requires_grad(true);
    let user = Box::into_raw(Box::new(Block {
        run: Box::new(block),
        done: Box::new(done),
    }));
    let mut output: Raw = std::ptr::null_mut();
    // SAFETY: `user` is owned by the node from here on, which frees it by `drop_block`; both
    // tensors live through the call.
    check(unsafe {
        shim_recompute(
            input.as_ptr() as Raw,
            anchor.as_ptr() as Raw,
            run_block,
            done_block,
            drop_block,
            user.cast(),
            &mut output,
        )
    })?;
    // SAFETY: on success the shim handed over a new tensor.
    Ok(unsafe { Tensor::from_ptr(output.cast()) })
}

/// Both closures behind a thin pointer.
struct Block {
    run: Box<dyn Fn(&Tensor) -> Tensor + Send>,
    done: Box<dyn Fn(Pass) -> Result<(), TchError> + Send>,
}

extern "C" fn run_block(user: *mut c_void, input: Raw) -> Raw {
    // SAFETY: `user` is the `Block` that `recompute` made; `input` is alive during the call.
    let (block, input) = unsafe { (&*user.cast::<Block>(), Tensor::clone_from_ptr(input.cast())) };
    // A panic must not cross C++.
    match catch_unwind(AssertUnwindSafe(|| (block.run)(&input))) {
        Ok(mut output) => {
            let pointer = output.as_mut_ptr() as Raw;
            std::mem::forget(output);
            pointer
        }
        Err(_) => std::ptr::null_mut(),
    }
}

extern "C" fn done_block(user: *mut c_void, backward: c_int) -> c_int {
    // SAFETY: `user` is the `Block` that `recompute` made.
    let block = unsafe { &*user.cast::<Block>() };
    let pass = match backward {
        0 => Pass::Forward,
        _ => Pass::Backward,
    };
    match catch_unwind(AssertUnwindSafe(|| (block.done)(pass))) {
        Ok(Ok(())) => 0,
        _ => 1,
    }
}

extern "C" fn drop_block(user: *mut c_void) {
    // SAFETY: called once, by the node that owns it.
    drop(unsafe { Box::from_raw(user.cast::<Block>()) });
}
