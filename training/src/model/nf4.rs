//! Matrices in 4-bit NormalFloat, as in QLoRA (arXiv 2305.14314, appendix E).

use tch::{Kind, Tensor, no_grad};

/// Elements that share a scale.
const BLOCK: i64 = 64;

/// The 16 levels: quantiles of the normal distribution scaled to [-1, 1], including zero.
pub(crate) const LEVELS: [f32; 16] = [
    -1.0,
    -0.696_192_8,
    -0.525_073_05,
    -0.394_917_5,
    -0.284_441_38,
    -0.184_773_43,
    -0.091_050_036,
    0.0,
    0.079_580_3,
    0.160_930_2,
    0.246_112_3,
    0.337_915_24,
    0.440_709_83,
    0.562_617,
    0.722_956_84,
    1.0,
];

/// A quantized matrix: two codes per byte and one float32 scale per 64 elements, 4.5 bits per element.
#[derive(Debug)]
pub struct Nf4 {
    /// uint8 `[blocks * 32]`; the first code of a pair is in the high bits.
    codes: Tensor,
    /// float32 `[blocks]`: the largest magnitude of each block.
    scales: Tensor,
    shape: Vec<i64>,
    kind: Kind,
}

impl Nf4 {
    /// Rounds every element of a floating-point matrix to the nearest level.
    pub fn quantize(matrix: &Tensor) -> Self {
        no_grad(|| {
            let flat = matrix.detach().to_kind(Kind::Float).reshape([-1]);
            let padding = (BLOCK - flat.size()[0] % BLOCK) % BLOCK;
            let blocks = flat.constant_pad_nd([0, padding]).view([-1, BLOCK]);
            let scales = blocks.abs().amax([1], false);
            let safe = scales.clamp_min(f64::from(f32::MIN_POSITIVE)).unsqueeze(1);
            let middles: Vec<f32> = LEVELS.windows(2).map(|p| (p[0] + p[1]) / 2.0).collect();
            let middles = Tensor::from_slice(&middles).to_device(flat.device());
            let levels = (blocks / safe).bucketize(&middles, true, false);
            let pairs = levels.view([-1, 2]);
            let codes = pairs.select(1, 0) * 16 + pairs.select(1, 1);
            Self {
                codes: codes.to_kind(Kind::Uint8),
                scales,
                shape: matrix.size(),
                kind: matrix.kind(),
            }
        })
    }

    /// The matrix in its original dtype.
    pub fn dequantize(&self) -> Tensor {
        no_grad(|| {
            let packed = self.codes.to_kind(Kind::Int);
            let high = packed.divide_scalar_mode(16, "floor");
            let low = packed.bitwise_and(15);
            let levels = Tensor::from_slice(&LEVELS).to_device(packed.device());
            let codes = Tensor::stack(&[high, low], 1).view([-1]);
            let blocks = levels.index_select(0, &codes).view([-1, BLOCK]);
            let values = (blocks * self.scales.unsqueeze(1)).view([-1]);
            let elements = self.shape.iter().product();
            values
                .narrow(0, 0, elements)
                .reshape(self.shape.as_slice())
                .to_kind(self.kind)
        })
    }

    pub(super) fn share(&self) -> Self {
        Self {
            codes: self.codes.shallow_clone(),
            scales: self.scales.shallow_clone(),
            shape: self.shape.clone(),
            kind: self.kind,
        }
    }

    /// Bytes of codes and scales.
    pub fn bytes(&self) -> usize {
        self.codes.numel() + 4 * self.scales.numel()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    /// The nearest of all 16 levels for each element, in float64.
    fn reference(values: &[f64]) -> Vec<f64> {
        let block = |block: &[f64]| -> Vec<f64> {
            let scale = block.iter().fold(0.0f64, |max, v| max.max(v.abs()));
            let nearest = |v: f64| {
                let levels = LEVELS.iter().map(|&level| f64::from(level) * scale);
                levels.fold(f64::MAX, |best, level| {
                    match (level - v).abs() < (best - v).abs() {
                        true => level,
                        false => best,
                    }
                })
            };
            block.iter().map(|&v| nearest(v)).collect()
        };
        values.chunks(BLOCK as usize).flat_map(block).collect()
    }

    #[test]
    fn every_element_is_rounded_to_the_nearest_level() {
        tch::manual_seed(3);
        // 37 × 11 is not a multiple of the block size: the last block is padded.
        for (shape, scale) in [([37, 11], 0.02), ([64, 64], 3.0)] {
            let matrix = Tensor::randn(shape, (Kind::Float, Device::Cpu)) * scale;
            let quantized = Nf4::quantize(&matrix);
            let values = Vec::<f64>::try_from(matrix.to_kind(Kind::Double).view([-1])).unwrap();
            let found = quantized.dequantize();
            assert_eq!(found.size(), shape);
            let found = Vec::<f64>::try_from(found.to_kind(Kind::Double).view([-1])).unwrap();
            for (found, wanted) in found.iter().zip(reference(&values)) {
                assert!((found - wanted).abs() <= 1e-6 * scale, "{found} {wanted}");
            }
            let elements = (shape[0] * shape[1]) as usize;
            assert!(quantized.bytes() <= elements * 9 / 16 + 64);
        }
    }

    #[test]
    fn zeros_and_levels_survive() {
        let zeros = Tensor::zeros([4, 32], (Kind::Float, Device::Cpu));
        assert!(Nf4::quantize(&zeros).dequantize().equal(&zeros));
        let levels = Tensor::from_slice(&LEVELS).repeat([8]).view([2, 64]);
        assert!(Nf4::quantize(&levels).dequantize().equal(&levels));
    }
}
