//! Moments of AdamW, whole or in eight bits.

use std::cell::OnceCell;

use tch::{Device, Kind, TchError, Tensor};

use super::shelf::Shelf;

/// Elements that share a scale.
pub(super) const BLOCK: i64 = 256;

/// A moment of one piece of a parameter.
#[derive(Debug)]
pub(super) enum Moment {
    /// Float32.
    Whole(Tensor),
    /// One byte an element and a float32 scale for 256 of them.
    Blocks { codes: Tensor, scales: Tensor },
}

/// The levels of a byte, in [-1, 1] or [0, 1], and the middles between them.
struct Levels {
    levels: Tensor,
    middles: Tensor,
}

/// "Dynamic tree" levels (Dettmers, arXiv 2110.02861): seven decades below the largest value, each with
/// half as many levels as the one above, so that small values keep their magnitude.
fn dynamic_levels(signed: bool) -> Vec<f32> {
    let mut levels = vec![0.0, 1.0];
    for decade in 0..7 {
        let count = 1usize << (decade + usize::from(!signed));
        let width = 0.9 / count as f64;
        for place in 0..count {
            let middle = 0.1 + (place as f64 + 0.5) * width;
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
        let middles: Vec<f32> = levels.windows(2).map(|p| (p[0] + p[1]) / 2.0).collect();
        Self {
            levels: Tensor::from_slice(&levels).to_device(device),
            middles: Tensor::from_slice(&middles).to_device(device),
        }
    }
}

/// Levels of both moments on one device.
pub(super) struct Codec {
    device: Device,
    signed: OnceCell<Levels>,
    unsigned: OnceCell<Levels>,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Codec({:?})", self.device)
    }
}

impl Codec {
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

    /// Values to codes and scales. `values` is flat float32. Of the second moment, which is not
    /// signed, nothing but zero becomes zero: the step divides by its root.
    pub(super) fn pack(&self, values: &Tensor, signed: bool) -> (Tensor, Tensor) {
        let elements = values.size()[0];
        let padding = (BLOCK - elements % BLOCK) % BLOCK;
        let blocks = values.constant_pad_nd([0, padding]).view([-1, BLOCK]);
        let scales = blocks.abs().amax([1], false);
        let safe = scales.clamp_min(f64::from(f32::MIN_POSITIVE)).unsqueeze(1);
        let mut codes = (&blocks / safe).bucketize(&self.levels(signed).middles, true, false);
        if !signed {
            codes = codes.maximum(&blocks.gt(0.0).to_kind(Kind::Int));
        }
        let codes = codes.to_kind(Kind::Uint8).view([-1]);
        (codes.narrow(0, 0, elements).copy(), scales)
    }

    /// The values again, flat float32.
    pub(super) fn unpack(&self, codes: &Tensor, scales: &Tensor, signed: bool) -> Tensor {
        let elements = codes.size()[0];
        let padding = (BLOCK - elements % BLOCK) % BLOCK;
        let places = codes.to_kind(Kind::Int);
        let values = self.levels(signed).levels.index_select(0, &places);
        let blocks = values.constant_pad_nd([0, padding]).view([-1, BLOCK]);
        (blocks * scales.unsqueeze(1))
            .view([-1])
            .narrow(0, 0, elements)
    }
}

impl Moment {
    /// Zeros for a tensor of that many elements.
    pub(super) fn zeros(elements: i64, eight_bits: bool, shelf: &Shelf) -> Result<Self, TchError> {
        if !eight_bits {
            return Ok(Self::Whole(shelf.zeros(elements, Kind::Float)?));
        }
        let blocks = (elements + BLOCK - 1) / BLOCK;
        // The first code of either table that means zero matters not: the scales are zero.
        Ok(Self::Blocks {
            codes: shelf.zeros(elements, Kind::Uint8)?,
            scales: shelf.zeros(blocks, Kind::Float)?,
        })
    }

    /// The tensors that hold it.
    pub(super) fn tensors(&self) -> Vec<&Tensor> {
        match self {
            Self::Whole(values) => vec![values],
            Self::Blocks { codes, scales } => vec![codes, scales],
        }
    }

    /// What a checkpoint holds of it: suffix of the name, elements a unit covers, and the tensor.
    pub(super) fn state(&self) -> Vec<(&'static str, i64, Tensor)> {
        match self {
            Self::Whole(values) => vec![("", 1, values.shallow_clone())],
            Self::Blocks { codes, scales } => vec![
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
    fn tables_have_256_levels_in_order() {
        for signed in [true, false] {
            let levels = dynamic_levels(signed);
            assert_eq!(levels.len(), 256);
            assert!(levels.windows(2).all(|pair| pair[0] < pair[1]));
            assert_eq!(levels.iter().filter(|&&l| l == 0.0).count(), 1);
        }
    }

    #[test]
    fn packed_values_stay_within_the_bounds_of_their_decade() {
        let codec = Codec::new(Device::Cpu);
        tch::manual_seed(9);
        let values = Tensor::randn([4099], (Kind::Float, Device::Cpu)).pow_tensor_scalar(3);
        for signed in [true, false] {
            let values = if signed { values.copy() } else { values.abs() };
            let (codes, scales) = codec.pack(&values, signed);
            let found = Vec::<f64>::try_from(codec.unpack(&codes, &scales, signed)).unwrap();
            let wanted = Vec::<f64>::try_from(&values).unwrap();
            let scales = Vec::<f64>::try_from(&scales).unwrap();
            let top = if signed { 64.0 } else { 128.0 };
            for (place, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                let share = wanted.abs() / scales[place / BLOCK as usize];
                let decade = (-share.log10()).ceil().clamp(1.0, 7.0) - 1.0;
                // A level's half width in its decade; the gap between two decades is wider by as
                // much again.
                let bound = 0.9 / (top / 2f64.powf(decade)) * 10f64.powf(-decade);
                let off = (found - wanted).abs() / scales[place / BLOCK as usize];
                assert!(
                    off <= bound,
                    "{wanted}: off by {off} of the largest, bound {bound}"
                );
            }
        }
    }

    #[test]
    fn a_second_moment_does_not_vanish() {
        let codec = Codec::new(Device::Cpu);
        let values = Tensor::from_slice(&[1.0f32, 1e-12, 0.0]);
        let (codes, scales) = codec.pack(&values, false);
        let found = Vec::<f32>::try_from(codec.unpack(&codes, &scales, false)).unwrap();
        assert!(
            found[0] == 1.0 && found[1] > 0.0 && found[2] == 0.0,
            "{found:?}"
        );
    }
}
