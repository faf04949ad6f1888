//! Operations of the forward pass on a CPU that keep little for their backward pass, which computes
//! again what is cheap. Float32 or bf16; float32 inside. Like those of tch they panic where libtorch
//! throws.

use std::ffi::c_int;
use std::ptr::null_mut;

use tch::{Device, Kind, Tensor};

use super::shim::{Raw, check};

unsafe extern "C" {
    fn shim_rms_norm(x: Raw, weight: Raw, epsilon: f64, y: *mut Raw) -> c_int;
    fn shim_linear(x: Raw, matrix: Raw, bias: Raw, y: *mut Raw) -> c_int;
    fn shim_norm_linears(
        x: Raw,
        weight: Raw,
        epsilon: f64,
        linears: *const Raw,
        count: c_int,
        outputs: *mut Raw,
    ) -> c_int;
    fn shim_swiglu_linear(gate: Raw, up: Raw, matrix: Raw, y: *mut Raw) -> c_int;
    fn shim_rotate(x: Raw, cos: Raw, sin: Raw, y: *mut Raw) -> c_int;
    fn shim_attend(q: Raw, k: Raw, v: Raw, documents: Raw, y: *mut Raw) -> c_int;
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

/// Whether these operations are for a model whose parameters are like this one.
pub fn supports(parameter: &Tensor) -> bool {
    parameter.device() == Device::Cpu && matches!(parameter.kind(), Kind::Float | Kind::BFloat16)
}

fn raw(tensor: &Tensor) -> Raw {
    tensor.as_ptr() as Raw
}

fn demand(code: c_int) {
    if let Err(error) = check(code) {
        panic!("{error}");
    }
}

/// The tensor that a function of the shim leaves.
fn made(call: impl FnOnce(*mut Raw) -> c_int) -> Tensor {
    let mut y = null_mut();
    demand(call(&mut y));
    // SAFETY: on success the shim handed over a new tensor.
    unsafe { Tensor::from_ptr(y.cast()) }
}

/// RMSNorm (arXiv 1910.07467) of the last dimension: `x / sqrt(mean(x²) + epsilon) * weight`.
pub fn rms_norm(x: &Tensor, weight: &Tensor, epsilon: f64) -> Tensor {
    // SAFETY: both tensors are alive; the shim checks their kinds and sizes.
    made(|y| unsafe { shim_rms_norm(raw(x), raw(weight), epsilon, y) })
}

/// `x · matrixᵀ + bias`.
pub fn linear(x: &Tensor, matrix: &Tensor, bias: Option<&Tensor>) -> Tensor {
    let none = Tensor::empty([0], (x.kind(), x.device()));
    let bias = raw(bias.unwrap_or(&none));
    // SAFETY: the tensors are alive; libtorch checks their sizes.
    made(|y| unsafe { shim_linear(raw(x), raw(matrix), bias, y) })
}

/// Several matrices `[out, in]`, with a bias or without, of one input that is normalised as
/// [`rms_norm`] has it. Of the normalised input nothing is kept.
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
    demand(unsafe {
        let (all, outputs) = (all.as_ptr(), outputs.as_mut_ptr());
        shim_norm_linears(raw(x), raw(weight), epsilon, all, N as c_int, outputs)
    });
    // SAFETY: on success the shim handed over N new tensors.
    outputs.map(|y| unsafe { Tensor::from_ptr(y.cast()) })
}

/// `(silu(gate) * up) · matrixᵀ` (SwiGLU, arXiv 2002.05202). Of the product nothing is kept.
pub fn swiglu_linear(gate: &Tensor, up: &Tensor, matrix: &Tensor) -> Tensor {
    // SAFETY: the tensors are alive; the shim checks their kinds and sizes.
    made(|y| unsafe { shim_swiglu_linear(raw(gate), raw(up), raw(matrix), y) })
}

/// Rotary positions of `[rows, width, heads * dim]`: the pair (i, i + dim / 2) of each head is turned.
/// `cos` and `sin` are float32, `[rows, width, dim]` with equal halves.
pub fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    // SAFETY: the tensors are alive; the shim checks kinds and sizes.
    made(|y| unsafe { shim_rotate(raw(x), raw(cos), raw(sin), y) })
}

/// Causal attention of queries `[rows, heads, width, dim]` over keys and values with as many heads or
/// a divisor of it, within documents: int64 `[n, 3]`, row, first column and length. Columns of none
/// give 0.
pub fn attend(q: &Tensor, k: &Tensor, v: &Tensor, documents: &Tensor) -> Tensor {
    // SAFETY: the tensors are alive; the shim checks what documents are, libtorch that they lie within.
    made(|y| unsafe { shim_attend(raw(q), raw(k), raw(v), raw(documents), y) })
}

/// Rows of a table, for int64 numbers of any shape.
pub fn embed(table: &Tensor, ids: &Tensor) -> Tensor {
    // SAFETY: both tensors are alive; libtorch checks that the numbers are of rows.
    made(|y| unsafe { shim_embed(raw(table), raw(ids), y) })
}

/// What is predicted from rows of hidden states, as [`linear_cross_entropy`] wants it.
#[derive(Clone, Copy, Debug)]
pub struct Predicted<'a> {
    /// The matrix of logits, `[vocab, hidden]`.
    pub head: &'a Tensor,
    /// The right tokens, int64 `[n]`.
    pub tokens: &'a Tensor,
    /// How much each counts, float32 `[n]`.
    pub weights: &'a Tensor,
}

/// The weighted sum of `-log softmax(hidden · headᵀ)[token]` over the rows of `hidden`, in nats, with
/// the logits of `chunk` rows at a time. With a scale, also the gradient of that multiple of the sum
/// with respect to `hidden`; that of the head is added to the head's own.
pub fn linear_cross_entropy(
    hidden: &Tensor,
    predicted: Predicted<'_>,
    chunk: i64,
    scale: Option<f64>,
) -> (f64, Option<Tensor>) {
    let Predicted {
        head,
        tokens,
        weights,
    } = predicted;
    let sizes = [tokens, weights].map(|list| (list.size(), list.is_contiguous()));
    let wanted = (vec![hidden.size()[0]], true);
    assert_eq!(
        sizes,
        [wanted.clone(), wanted],
        "a token and a weight a row"
    );
    let kinds = (tokens.kind(), weights.kind());
    assert_eq!(kinds, (Kind::Int64, Kind::Float));
    let gradient = scale.map(|_| tch::no_grad(|| hidden.detach().empty_like()));
    let mut loss = 0.0;
    // SAFETY: all tensors are alive, on the CPU, and of the sizes and kinds that the shim reads.
    demand(unsafe {
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

/// The backward pass from a tensor whose gradient is known.
pub fn backward(tensor: &Tensor, gradient: &Tensor) {
    // SAFETY: both tensors are alive.
    demand(unsafe { shim_backward(raw(tensor), raw(gradient)) })
}
