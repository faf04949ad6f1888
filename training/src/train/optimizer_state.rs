//! One state tensor of AdamW (`exp_avg` or `exp_avg_sq`), in float32 or in 8 bits.

use std::cell::OnceCell;

use tch::{Device, Kind, TchError, Tensor};

use super::state_offload::StateOffload;
use crate::torch::kernels::StateParts;

/// Elements per scale.
pub(super) const BLOCK: i64 = 256;

#[derive(Debug)]
pub(super) enum StateTensor {
    Float32(Tensor),
    /// One byte per element and one float32 scale per 256 elements.
    Int8 {
        codes: Tensor,
        scales: Tensor,
    },
}

/// The 256 levels in [-1, 1] or [0, 1], and the midpoints between them.
struct Levels {
    levels: Tensor,
    midpoints: Tensor,
}

/// Dynamic tree quantization (arXiv 2110.02861): seven decades below the largest value, each with half as many
/// levels as the one above, so that small values keep their magnitude.
fn dynamic_levels(signed: bool) -> Vec<f32> {
    let mut levels = vec![0.0, 1.0];
    for decade in 0..7 {
        let count = 1usize << (decade + usize::from(!signed));
        let width = 0.9 / count as f64;
        for index in 0..count {
            let middle = 0.1 + (index as f64 + 0.5) * width;
            let level = (middle * 10f64.powi(decade as i32 - 6)) as f32;
            levels.push(level);
            if signed {
                levels.push(-level);
            }
        }
    }
    levels.sort_by(f32::total_cmp);
    levels
}

impl Levels {
    fn new(signed: bool, device: Device) -> Self {
        let levels = dynamic_levels(signed);
        let midpoints: Vec<f32> = levels.windows(2).map(|p| (p[0] + p[1]) / 2.0).collect();
        Self {
            levels: Tensor::from_slice(&levels).to_device(device),
            midpoints: Tensor::from_slice(&midpoints).to_device(device),
        }
    }
}

/// Blockwise 8-bit quantization on one device. `exp_avg` is signed, `exp_avg_sq` is not.
pub(super) struct StateQuantizer {
    device: Device,
    signed: OnceCell<Levels>,
    unsigned: OnceCell<Levels>,
}

impl std::fmt::Debug for StateQuantizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StateQuantizer({:?})", self.device)
    }
}

impl StateQuantizer {
    pub(super) fn new(device: Device) -> Self {
        Self {
            device,
            signed: OnceCell::new(),
            unsigned: OnceCell::new(),
        }
    }

    fn levels(&self, signed: bool) -> &Levels {
        let cell = if signed { &self.signed } else { &self.unsigned };
        cell.get_or_init(|| Levels::new(signed, self.device))
    }

    /// The 256 levels in order.
    pub(super) fn table(&self, signed: bool) -> &Tensor {
        &self.levels(signed).levels
    }

    /// Codes and scales of flat float32 values. Of unsigned values only zero becomes zero, because the step divides
    /// by the square root.
    pub(super) fn quantize(&self, values: &Tensor, signed: bool) -> (Tensor, Tensor) {
        let elements = values.size()[0];
        let padding = (BLOCK - elements % BLOCK) % BLOCK;
        let blocks = values.constant_pad_nd([0, padding]).view([-1, BLOCK]);
        let scales = blocks.abs().amax([1], false);
        let safe = scales.clamp_min(f64::from(f32::MIN_POSITIVE)).unsqueeze(1);
        let mut codes = (&blocks / safe).bucketize(&self.levels(signed).midpoints, true, false);
        if !signed {
            codes = codes.maximum(&blocks.gt(0.0).to_kind(Kind::Int));
        }
        let codes = codes.to_kind(Kind::Uint8).view([-1]);
        (codes.narrow(0, 0, elements).copy(), scales)
    }

    /// Flat float32 values.
    pub(super) fn dequantize(&self, codes: &Tensor, scales: &Tensor, signed: bool) -> Tensor {
        let elements = codes.size()[0];
        let padding = (BLOCK - elements % BLOCK) % BLOCK;
        let positions = codes.to_kind(Kind::Int);
        let values = self.levels(signed).levels.index_select(0, &positions);
        let blocks = values.constant_pad_nd([0, padding]).view([-1, BLOCK]);
        (blocks * scales.unsqueeze(1))
            .view([-1])
            .narrow(0, 0, elements)
    }
}

impl StateTensor {
    /// Zeros with the given number of elements.
    pub(super) fn zeros(
        elements: i64,
        int8: bool,
        offload: &StateOffload,
    ) -> Result<Self, TchError> {
        if !int8 {
            return Ok(Self::Float32(offload.zeros(elements, Kind::Float)?));
        }
        let blocks = (elements + BLOCK - 1) / BLOCK;
        // The codes do not matter while the scales are zero.
        Ok(Self::Int8 {
            codes: offload.zeros(elements, Kind::Uint8)?,
            scales: offload.zeros(blocks, Kind::Float)?,
        })
    }

    /// A range of elements that begins at a whole block; shares the storage.
    pub(super) fn range(&self, (start, count): (i64, i64)) -> Self {
        match self {
            Self::Float32(values) => Self::Float32(values.narrow(0, start, count)),
            Self::Int8 { codes, scales } => Self::Int8 {
                codes: codes.narrow(0, start, count),
                scales: scales.narrow(0, start / BLOCK, (count + BLOCK - 1) / BLOCK),
            },
        }
    }

    /// The same tensors where they are on that device, otherwise copies.
    pub(super) fn to_device(&self, device: Device) -> Self {
        match self {
            Self::Float32(values) => Self::Float32(values.to_device(device)),
            Self::Int8 { codes, scales } => Self::Int8 {
                codes: codes.to_device(device),
                scales: scales.to_device(device),
            },
        }
    }

    /// Overwrites the elements by those of another state of the same format.
    pub(super) fn copy_(&self, from: &Self) {
        for (to, from) in self.tensors().into_iter().zip(from.tensors()) {
            to.shallow_clone().copy_(from);
        }
    }

    /// Arguments for the kernel.
    pub(super) fn parts<'a>(
        &'a self,
        quantizer: &'a StateQuantizer,
        signed: bool,
    ) -> StateParts<'a> {
        match self {
            Self::Float32(values) => StateParts::Float32(values),
            Self::Int8 { codes, scales } => StateParts::Int8 {
                codes,
                scales,
                levels: quantizer.table(signed),
            },
        }
    }

    pub(super) fn tensors(&self) -> Vec<&Tensor> {
        match self {
            Self::Float32(values) => vec![values],
            Self::Int8 { codes, scales } => vec![codes, scales],
        }
    }

    /// Tensors for a checkpoint: suffix of the name, elements per entry, and the tensor.
    pub(super) fn state(&self) -> Vec<(&'static str, i64, Tensor)> {
        match self {
            Self::Float32(values) => vec![("", 1, values.shallow_clone())],
            Self::Int8 { codes, scales } => vec![
                (".codes", 1, codes.shallow_clone()),
                (".scales", BLOCK, scales.shallow_clone()),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_256_sorted_levels() {
        for signed in [true, false] {
            let levels = dynamic_levels(signed);
            assert_eq!(levels.len(), 256);
            assert!(levels.windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!(levels.iter().filter(|&&l| l == 0.0).count(), 1);
        }
    }

    #[test]
    fn quantization_errors_are_bounded_by_the_decade() {
        let quantizer = StateQuantizer::new(Device::Cpu);
        let _seeded = crate::random::seed(9);
        let values = Tensor::randn([4099], (Kind::Float, Device::Cpu)).pow_tensor_scalar(3);
        for signed in [true, false] {
            let values = if signed { values.copy() } else { values.abs() };
            let (codes, scales) = quantizer.quantize(&values, signed);
            let found =
                Vec::<f64>::try_from(quantizer.dequantize(&codes, &scales, signed)).unwrap();
            let wanted = Vec::<f64>::try_from(&values).unwrap();
            let scales = Vec::<f64>::try_from(&scales).unwrap();
            let top = if signed { 64.0 } else { 128.0 };
            for (index, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                let share = wanted.abs() / scales[index / BLOCK as usize];
                let decade = (-share.log10()).ceil().clamp(1.0, 7.0) - 1.0;
                // Half the width of a level in its decade; the gap between two decades is twice as
                // wide.
                let bound = 0.9 / (top / 2f64.powf(decade)) * 10f64.powf(-decade);
                let off = (found - wanted).abs() / scales[index / BLOCK as usize];
                assert!(
                    off <= bound,
                    "{wanted}: off by {off} of the largest, bound {bound}"
                );
            }
        }
    }

    #[test]
    fn small_unsigned_values_do_not_become_zero() {
        let quantizer = StateQuantizer::new(Device::Cpu);
        let values = Tensor::from_slice(&[1.0f32, 1e-12, 0.0]);
        let (codes, scales) = quantizer.quantize(&values, false);
        let found = Vec::<f32>::try_from(quantizer.dequantize(&codes, &scales, false)).unwrap();
        assert!(
            found[0] == 1.0 && found[1] > 0.0 && found[2] == 0.0,
            "{found:?}"
        );
    }
}
