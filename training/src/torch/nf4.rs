//! Matrices in NF4 on a CPU and, by kernels, on a GPU (`shim/nf4.cpp`). Like the operations of tch these panic if libtorch throws.

use std::ffi::c_int;
use std::ptr::null_mut;

use tch::{Device, Kind, Tensor, no_grad};

use super::fused::{new_tensor, panic_on_error, raw};
use super::kernels;
use super::shim::Raw;

/// Elements of a matrix that a thread dequantizes at once; `PANEL` in `shim/nf4.cpp`.
pub(crate) const PANEL_ELEMENTS: u64 = 1 << 20;

/// Tensors as `shim/nf4.cpp` reads them.
#[repr(C)]
struct RawParts {
    levels: Raw,
    codes: Raw,
    scales: Raw,
    ranges: Raw,
    mean: Raw,
}

unsafe extern "C" {
    #[cfg(test)]
    fn shim_nf4_has(set: c_int) -> c_int;
    fn shim_nf4_dequantize(parts: *const RawParts, set: c_int, to: Raw) -> c_int;
    fn shim_nf4_quantize(matrix: Raw, middles: Raw, set: c_int, codes: Raw, scales: Raw) -> c_int;
    fn shim_nf4_linear(x: Raw, parts: *const RawParts, bias: Raw, out: i64, y: *mut Raw) -> c_int;
}

/// What the loops are compiled for. All give the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InstructionSet {
    /// The best that this processor has.
    Best = -1,
    #[cfg(test)]
    Portable,
    #[cfg(test)]
    Avx2,
    #[cfg(test)]
    Avx512,
}

impl InstructionSet {
    /// Those that this processor has.
    #[cfg(test)]
    pub(crate) fn available() -> Vec<Self> {
        // SAFETY: the argument is a number that the shim knows.
        let has = |set: &Self| unsafe { shim_nf4_has(*set as c_int) } != 0;
        let all = [Self::Portable, Self::Avx2, Self::Avx512];
        all.into_iter().filter(has).collect()
    }
}

/// A packed matrix: 16 levels (float32, on the CPU), codes (uint8, two per byte, whole blocks), and the scales of the blocks:
/// float32, or int8 with float32 ranges and their mean.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) levels: &'a Tensor,
    pub(crate) codes: &'a Tensor,
    pub(crate) scales: &'a Tensor,
    pub(crate) ranges_and_mean: Option<(&'a Tensor, &'a Tensor)>,
}

impl Parts<'_> {
    fn raw(&self) -> RawParts {
        let (ranges, mean) = match self.ranges_and_mean {
            Some((ranges, mean)) => (raw(ranges), raw(mean)),
            None => (null_mut(), null_mut()),
        };
        RawParts {
            levels: raw(self.levels),
            codes: raw(self.codes),
            scales: raw(self.scales),
            ranges,
            mean,
        }
    }
}

/// Whether a matrix of this kind is quantized here: float32 or bf16 on a CPU.
pub(crate) fn quantizes(kind: Kind, device: Device) -> bool {
    device == Device::Cpu && matches!(kind, Kind::Float | Kind::BFloat16)
}

/// Whether a matrix of this kind with these codes is dequantized and multiplied here: float32 or bf16, on a CPU or on
/// a GPU that runs kernels.
pub(crate) fn supports(kind: Kind, codes: &Tensor) -> bool {
    let place = codes.device() == Device::Cpu || kernels::apply_to(codes);
    place && matches!(kind, Kind::Float | Kind::BFloat16)
}

/// The matrix `[rows, columns]` in float32 or bf16. The instruction set is that of a CPU.
pub(crate) fn dequantize(
    parts: Parts<'_>,
    [rows, columns]: [i64; 2],
    kind: Kind,
    set: InstructionSet,
) -> Tensor {
    let matrix = Tensor::empty([rows, columns], (kind, parts.codes.device()));
    // SAFETY: the tensors are alive; the shim checks their kinds and sizes.
    panic_on_error(unsafe { shim_nf4_dequantize(&parts.raw(), set as c_int, raw(&matrix)) });
    matrix
}

/// Codes and float32 scales of a float32 or bf16 matrix, in blocks of `block` elements. `middles` are the 15 values
/// between neighboring levels.
pub(crate) fn quantize(
    matrix: &Tensor,
    middles: &[f32; 15],
    block: i64,
    set: InstructionSet,
) -> (Tensor, Tensor) {
    let matrix = no_grad(|| matrix.detach().contiguous());
    let blocks = (matrix.numel() as i64 + block - 1) / block;
    let codes = Tensor::empty([blocks * block / 2], (Kind::Uint8, Device::Cpu));
    let scales = Tensor::empty([blocks], (Kind::Float, Device::Cpu));
    let middles = Tensor::from_slice(middles);
    // SAFETY: the tensors are alive; the shim checks their kinds and sizes.
    panic_on_error(unsafe {
        let (matrix, middles) = (raw(&matrix), raw(&middles));
        shim_nf4_quantize(matrix, middles, set as c_int, raw(&codes), raw(&scales))
    });
    (codes, scales)
}

/// `x · Wᵀ + bias` for a frozen matrix W of `out` rows, with the gradients of `x` and of the bias. On a CPU no more than
/// a panel of W per thread is dequantized at once; on a GPU all of W, once for each product.
pub(crate) fn linear(x: &Tensor, parts: Parts<'_>, bias: Option<&Tensor>, out: i64) -> Tensor {
    let none = Tensor::empty([0], (x.kind(), x.device()));
    let bias = raw(bias.unwrap_or(&none));
    // SAFETY: the tensors are alive; the shim checks their kinds and sizes.
    new_tensor(|y| unsafe { shim_nf4_linear(raw(x), &parts.raw(), bias, out, y) })
}
