//! Fused operations of the forward pass. They save little for the backward pass, which recomputes what is cheap.
//! CPU loops or GPU [`kernels`]; float32 or bf16, with float32 arithmetic. Like the operations of tch they
//! panic if libtorch throws.

use std::ffi::c_int;
use std::ptr::null_mut;

use tch::{Device, Kind, Tensor};

use super::kernels;
use super::shim::{Raw, check};

unsafe extern "C" {
    fn shim_rms_norm(x: Raw, weight: Raw, epsilon: f64, y: *mut Raw) -> c_int;
    fn shim_widened_product(x: Raw, matrix: Raw, y: *mut Raw) -> c_int;
    fn shim_linear(x: Raw, matrix: Raw, bias: Raw, y: *mut Raw) -> c_int;
    fn shim_norm_linears(
        x: Raw,
        weight: Raw,
        epsilon: f64,
        linears: *const Raw,
        count: c_int,
        outputs: *mut Raw,
    ) -> c_int;
    fn shim_swiglu(gate: Raw, up: Raw, y: *mut Raw) -> c_int;
    fn shim_swiglu_linear(gate: Raw, up: Raw, matrix: Raw, y: *mut Raw) -> c_int;
    fn shim_rotate(x: Raw, cos: Raw, sin: Raw, y: *mut Raw) -> c_int;
    fn shim_attend(q: Raw, k: Raw, v: Raw, documents: Raw, y: *mut Raw) -> c_int;
    fn shim_attend_packed(
        q: Raw,
        k: Raw,
        v: Raw,
        offsets: Raw,
        longest: i64,
        window: i64,
        y: *mut Raw,
    ) -> c_int;
    fn shim_attend_cached(
        q: Raw,
        k: Raw,
        v: Raw,
        offsets: Raw,
        key_offsets: Raw,
        longest: i64,
        longest_keys: i64,
        window: i64,
        y: *mut Raw,
    ) -> c_int;
    fn shim_embed(table: Raw, ids: Raw, y: *mut Raw) -> c_int;
    fn shim_linear_cross_entropy(
        hidden: Raw,
        head: Raw,
        tokens: Raw,
        weights: Raw,
        scale: f64,
        chunk: i64,
        gradient: Raw,
        loss: *mut f64,
    ) -> c_int;
    fn shim_backward(tensor: Raw, gradient: Raw) -> c_int;
}

/// Whether the fused operations support the dtype and device of this tensor.
pub fn supports(parameter: &Tensor) -> bool {
    let kind = matches!(parameter.kind(), Kind::Float | Kind::BFloat16);
    kind && (parameter.device() == Device::Cpu || kernels::apply_to(parameter))
}

/// Whether [`attend_packed`] supports queries like these: bf16 on a GPU.
pub fn supports_packed_attention(q: &Tensor) -> bool {
    let fits = q
        .size()
        .last()
        .is_some_and(|dim| dim % 8 == 0 && *dim <= 256);
    kernels::apply_to(q) && (kernels::emulating() || (fits && q.kind() == Kind::BFloat16))
}

pub(super) fn raw(tensor: &Tensor) -> Raw {
    tensor.as_ptr() as Raw
}

pub(super) fn panic_on_error(code: c_int) {
    if let Err(error) = check(code) {
        panic!("{error}");
    }
}

/// Calls a function of the shim that returns a new tensor.
pub(super) fn new_tensor(call: impl FnOnce(*mut Raw) -> c_int) -> Tensor {
    let mut y = null_mut();
    panic_on_error(call(&mut y));
    // SAFETY: on success the shim handed over a new tensor.
    unsafe { Tensor::from_ptr(y.cast()) }
}

/// RMSNorm (arXiv 1910.07467) of the last dimension: `x / sqrt(mean(x²) + epsilon) * weight`.
pub fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Tensor {
    // SAFETY: both tensors are alive; the shim checks their kinds and sizes.
    new_tensor(|y| unsafe { shim_rms_norm(raw(x), raw(weight), epsilon, y) })
}

/// `x · matrixᵀ + bias`.
pub fn linear(x: &Tensor, matrix: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let none = Tensor::empty([0], (x.kind(), x.device()));
    let bias = raw(bias.unwrap_or(&none));
    // SAFETY: the tensors are alive; libtorch checks their sizes.
    new_tensor(|y| unsafe { shim_linear(raw(x), raw(matrix), bias, y) })
}

/// `x · matrixᵀ` of bf16 matrices on a CPU by a product in float32, rounded once: how processors without AVX-512 multiply
/// four rows or more. No gradient.
pub fn widened_product(x: &Tensor, matrix: &Tensor) -> Tensor {
    // SAFETY: both tensors are alive; libtorch checks their sizes.
    new_tensor(|y| unsafe { shim_widened_product(raw(x), raw(matrix), y) })
}

/// [`rms_norm`] followed by several matrices `[out, in]` with optional biases. The normalized input is not
/// saved for the backward pass.
pub fn norm_linears<const N: usize>(
    x: &Tensor,
    weight: &Tensor,
    epsilon: f64,
    linears: [(&Tensor, Option<&Tensor>); N],
) -> [Tensor; N] {
    let matrices = linears.iter().map(|(matrix, _)| raw(matrix));
    let biases = linears.iter().map(|(_, bias)| bias.map_or(null_mut(), raw));
    let all: Vec<Raw> = matrices.chain(biases).collect();
    let mut outputs = [null_mut(); N];
    // SAFETY: `all` holds N matrices and N biases or nulls, all alive; there is room for N results.
    panic_on_error(unsafe {
        let (all, outputs) = (all.as_ptr(), outputs.as_mut_ptr());
        shim_norm_linears(raw(x), raw(weight), epsilon, all, N as c_int, outputs)
    });
    // SAFETY: on success the shim handed over N new tensors.
    outputs.map(|y| unsafe { Tensor::from_ptr(y.cast()) })
}

/// `silu(gate) * up`.
pub fn swiglu(gate: &Tensor, up: &Tensor) -> Tensor {
    // SAFETY: both tensors are alive; the shim checks their kinds and sizes.
    new_tensor(|y| unsafe { shim_swiglu(raw(gate), raw(up), y) })
}

/// `(silu(gate) * up) · matrixᵀ` (SwiGLU, arXiv 2002.05202). The product is not saved for the backward pass.
pub fn swiglu_linear(gate: &Tensor, up: &Tensor, matrix: &Tensor) -> Tensor {
    // SAFETY: the tensors are alive; the shim checks their kinds and sizes.
    new_tensor(|y| unsafe { shim_swiglu_linear(raw(gate), raw(up), raw(matrix), y) })
}

/// Rotary positions of `[rows, width, heads * dim]`: the pair (i, i + dim / 2) of each head is rotated.
/// `cos` and `sin` are float32, `[rows, width, dim]` with equal halves.
pub fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    // SAFETY: the tensors are alive; the shim checks kinds and sizes.
    new_tensor(|y| unsafe { shim_rotate(raw(x), raw(cos), raw(sin), y) })
}

/// Causal attention of queries `[rows, heads, width, dim]` within documents. The number of key and value heads
/// divides that of the queries. `documents` is int64 `[n, 3]`: row, first column and length. Columns
/// outside of documents give 0.
pub fn attend(q: &Tensor, k: &Tensor, v: &Tensor, documents: &Tensor) -> Tensor {
    // SAFETY: the tensors are alive; the shim checks the shape of documents, libtorch their bounds.
    new_tensor(|y| unsafe { shim_attend(raw(q), raw(k), raw(v), raw(documents), y) })
}

/// Consecutive sequences of tokens.
#[derive(Debug)]
pub struct Sequences {
    /// Start of each sequence and end of the last one; int32, on the device of the tokens.
    pub offsets: Tensor,
    /// Length of the longest sequence.
    pub longest: i64,
}

/// Causal flash attention (arXiv 2307.08691) of `[rows, heads, width, dim]` within sequences that cross rows. The
/// number of key and value heads divides that of the queries. With a window, a token attends to that
/// many tokens including itself.
pub fn attend_packed(
    [q, k, v]: [&Tensor; 3],
    sequences: &Sequences,
    window: Option<i64>,
) -> Tensor {
    let offsets = raw(&sequences.offsets);
    let window = window.unwrap_or(0);
    // SAFETY: the tensors are alive; libtorch checks kinds and sizes.
    new_tensor(|y| unsafe {
        shim_attend_packed(
            raw(q),
            raw(k),
            raw(v),
            offsets,
            sequences.longest,
            window,
            y,
        )
    })
}

/// Causal flash attention of the last tokens of several sequences over all of theirs, without gradients: queries
/// `[tokens, heads, head_dim]`, keys and values `[all tokens, key heads, head_dim]`. With a window, a token attends to that
/// many tokens including itself.
pub fn attend_cached(
    [q, k, v]: [&Tensor; 3],
    queries: &Sequences,
    keys: &Sequences,
    window: Option<i64>,
) -> Tensor {
    let offsets = [queries, keys].map(|sequences| raw(&sequences.offsets));
    let window = window.unwrap_or(0);
    // SAFETY: the tensors are alive; libtorch checks kinds and sizes.
    new_tensor(|y| unsafe {
        shim_attend_cached(
            raw(q),
            raw(k),
            raw(v),
            offsets[0],
            offsets[1],
            queries.longest,
            keys.longest,
            window,
            y,
        )
    })
}

/// Rows of a table, for int64 indices of any shape.
pub fn embed(table: &Tensor, ids: &Tensor) -> Tensor {
    // SAFETY: both tensors are alive; libtorch checks the range of the indices.
    new_tensor(|y| unsafe { shim_embed(raw(table), raw(ids), y) })
}

/// The targets of [`linear_cross_entropy`].
#[derive(Clone, Copy, Debug)]
pub struct Targets<'a> {
    /// The output matrix, `[vocab, hidden]`.
    pub head: &'a Tensor,
    /// Target tokens, int64 `[n]`.
    pub tokens: &'a Tensor,
    /// Weight of each target, float32 `[n]`.
    pub weights: &'a Tensor,
}

/// The weighted sum of `-log softmax(hidden · headᵀ)[token]` over the rows of `hidden`, in nats, computed for
/// `chunk` rows at a time. With `scale`, also returns the gradient of `scale` times the sum with respect to
/// `hidden`; the gradient of the head is added to that of the parameter.
pub fn linear_cross_entropy(
    hidden: &Tensor,
    targets: Targets<'_>,
    chunk: i64,
    scale: Option<f64>,
) -> (f64, Option<Tensor>) {
    let Targets {
        head,
        tokens,
        weights,
    } = targets;
    let sizes = [tokens, weights].map(|list| (list.size(), list.is_contiguous()));
    let wanted = (vec![hidden.size()[0]], true);
    assert_eq!(
        sizes,
        [wanted.clone(), wanted],
        "one token and one weight per row"
    );
    let kinds = (tokens.kind(), weights.kind());
    assert_eq!(kinds, (Kind::Int64, Kind::Float));
    let gradient = scale.map(|_| tch::no_grad(|| hidden.detach().empty_like()));
    let mut loss = 0.0;
    // SAFETY: all tensors are alive, and of the sizes and kinds that the shim reads.
    panic_on_error(unsafe {
        shim_linear_cross_entropy(
            raw(hidden),
            raw(head),
            raw(tokens),
            raw(weights),
            scale.unwrap_or(0.0),
            chunk.max(1),
            gradient.as_ref().map_or(null_mut(), raw),
            &mut loss,
        )
    });
    (loss, gradient)
}

/// Runs the backward pass from a tensor with the given gradient.
pub fn backward(tensor: &Tensor, gradient: &Tensor) {
    // SAFETY: both tensors are alive.
    panic_on_error(unsafe { shim_backward(raw(tensor), raw(gradient)) })
}
