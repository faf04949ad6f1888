//! Matrices in 4-bit NormalFloat, as in QLoRA (arXiv 2305.14314, appendix E).

use tch::{Kind, Tensor, no_grad};

use crate::torch::nf4::{self as fused, InstructionSet};

/// Elements that share a scale.
const BLOCK: i64 = 64;
/// Scales that share a second scale in double quantization.
const SCALE_BLOCK: i64 = 256;

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

/// How the scales of a matrix in NF4 are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleFormat {
    /// 4.5 bits per element.
    Float32,
    /// Double quantization (section 3 of the paper): 8 bits per scale, 4.127 bits per element.
    Int8,
}

/// A quantized matrix: two codes per byte and one scale per 64 elements.
#[derive(Debug)]
pub struct Nf4 {
    /// uint8 `[blocks * 32]`; the first code of a pair is in the high bits.
    codes: Tensor,
    scales: Scales,
    shape: Vec<i64>,
    kind: Kind,
}

/// The largest magnitude of each block.
#[derive(Debug)]
enum Scales {
    /// `[blocks]`.
    Float32(Tensor),
    Int8 {
        /// int8 `[blocks]`, padded to whole blocks of scales: the distance from the mean.
        codes: Tensor,
        /// float32 `[blocks of scales]`: the largest distance in each.
        ranges: Tensor,
        /// float32 `[]`.
        mean: Tensor,
        blocks: i64,
    },
}

impl Scales {
    fn new(scales: Tensor, format: ScaleFormat) -> Self {
        if format == ScaleFormat::Float32 {
            return Self::Float32(scales);
        }
        let blocks = scales.size()[0];
        let mean = scales.mean(Kind::Float);
        let padding = (SCALE_BLOCK - blocks % SCALE_BLOCK) % SCALE_BLOCK;
        let distances = (scales - &mean).constant_pad_nd([0, padding]);
        let distances = distances.view([-1, SCALE_BLOCK]);
        let ranges = distances.abs().amax([1], false);
        let safe = ranges.clamp_min(f64::from(f32::MIN_POSITIVE)).unsqueeze(1);
        let codes = (distances / safe * 127.0).round().to_kind(Kind::Int8);
        Self::Int8 {
            codes: codes.view([-1]),
            ranges,
            mean,
            blocks,
        }
    }

    /// float32 `[blocks]`.
    fn values(&self) -> Tensor {
        match self {
            Self::Float32(scales) => scales.shallow_clone(),
            Self::Int8 {
                codes,
                ranges,
                mean,
                blocks,
            } => {
                let codes = codes.view([-1, SCALE_BLOCK]).to_kind(Kind::Float);
                let distances = codes * (ranges / 127.0).unsqueeze(1);
                let scales = (distances.view([-1]) + mean).narrow(0, 0, *blocks);
                // Rounding must not change signs.
                scales.clamp_min(0.0)
            }
        }
    }

    fn share(&self) -> Self {
        match self {
            Self::Float32(scales) => Self::Float32(scales.shallow_clone()),
            Self::Int8 {
                codes,
                ranges,
                mean,
                blocks,
            } => Self::Int8 {
                codes: codes.shallow_clone(),
                ranges: ranges.shallow_clone(),
                mean: mean.shallow_clone(),
                blocks: *blocks,
            },
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Float32(scales) => 4 * scales.numel(),
            Self::Int8 { codes, ranges, .. } => codes.numel() + 4 * ranges.numel() + 4,
        }
    }
}

impl Nf4 {
    /// Rounds every element of a floating-point matrix to the nearest level.
    pub fn quantize(matrix: &Tensor, format: ScaleFormat) -> Self {
        let (codes, scales) = match fused::quantizes(matrix.kind(), matrix.device()) {
            true => fused::quantize(matrix, &middles(), BLOCK, InstructionSet::Best),
            false => quantize_by_libtorch(matrix),
        };
        Self {
            codes,
            scales: no_grad(|| Scales::new(scales, format)),
            shape: matrix.size(),
            kind: matrix.kind(),
        }
    }

    /// The matrix in its original dtype.
    pub fn dequantize(&self) -> Tensor {
        let fits = fused::supports(self.kind, &self.codes);
        match (fits, &self.shape[..]) {
            (true, &[rows, columns]) => self.with_parts(|parts| {
                fused::dequantize(parts, [rows, columns], self.kind, InstructionSet::Best)
            }),
            _ => self.dequantize_by_libtorch(),
        }
    }

    /// `x · matrixᵀ + bias`. The matrix has no gradient.
    pub fn linear(&self, x: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let fits = x.kind() == self.kind && fused::supports(self.kind, &self.codes);
        match (fits, &self.shape[..]) {
            (true, &[rows, _]) => self.with_parts(|parts| fused::linear(x, parts, bias, rows)),
            _ => x.linear(&self.dequantize(), bias),
        }
    }

    fn with_parts<T>(&self, call: impl FnOnce(fused::Parts<'_>) -> T) -> T {
        let levels = Tensor::from_slice(&LEVELS);
        let (scales, ranges_and_mean) = match &self.scales {
            Scales::Float32(scales) => (scales, None),
            Scales::Int8 {
                codes,
                ranges,
                mean,
                ..
            } => (codes, Some((ranges, mean))),
        };
        call(fused::Parts {
            levels: &levels,
            codes: &self.codes,
            scales,
            ranges_and_mean,
        })
    }

    fn dequantize_by_libtorch(&self) -> Tensor {
        no_grad(|| {
            let packed = self.codes.to_kind(Kind::Int);
            let high = packed.divide_scalar_mode(16, "floor");
            let low = packed.bitwise_and(15);
            let levels = Tensor::from_slice(&LEVELS).to_device(packed.device());
            let codes = Tensor::stack(&[high, low], 1).view([-1]);
            let blocks = levels.index_select(0, &codes).view([-1, BLOCK]);
            let values = (blocks * self.scales.values().unsqueeze(1)).view([-1]);
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
            scales: self.scales.share(),
            shape: self.shape.clone(),
            kind: self.kind,
        }
    }

    /// Bytes of codes and scales.
    pub fn bytes(&self) -> usize {
        self.codes.numel() + self.scales.bytes()
    }
}

/// Between each level and the next.
fn middles() -> [f32; 15] {
    std::array::from_fn(|code| (LEVELS[code] + LEVELS[code + 1]) / 2.0)
}

/// Codes and float32 scales, on any device.
fn quantize_by_libtorch(matrix: &Tensor) -> (Tensor, Tensor) {
    no_grad(|| {
        let flat = matrix.detach().to_kind(Kind::Float).reshape([-1]);
        let padding = (BLOCK - flat.size()[0] % BLOCK) % BLOCK;
        let blocks = flat.constant_pad_nd([0, padding]).view([-1, BLOCK]);
        let scales = blocks.abs().amax([1], false);
        let safe = scales.clamp_min(f64::from(f32::MIN_POSITIVE)).unsqueeze(1);
        let middles = Tensor::from_slice(&middles()).to_device(flat.device());
        let levels = (blocks / safe).bucketize(&middles, true, false);
        let pairs = levels.view([-1, 2]);
        let codes = pairs.select(1, 0) * 16 + pairs.select(1, 1);
        (codes.to_kind(Kind::Uint8).view([-1]), scales)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torch::kernels::Emulation;
    use proptest::prelude::*;
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
        let _seeded = crate::random::seed(3);
        // 37 × 11 is not a multiple of the block size: the last block is padded.
        for (shape, scale) in [([37, 11], 0.02), ([64, 64], 3.0)] {
            let matrix = Tensor::randn(shape, (Kind::Float, Device::Cpu)) * scale;
            let quantized = Nf4::quantize(&matrix, ScaleFormat::Float32);
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
        let levels = Tensor::from_slice(&LEVELS).repeat([8]).view([2, 64]);
        for format in [ScaleFormat::Float32, ScaleFormat::Int8] {
            for matrix in [&zeros, &levels] {
                assert!(Nf4::quantize(matrix, format).dequantize().equal(matrix));
            }
        }
    }

    #[test]
    fn double_quantization_takes_4_127_bits_and_rounds_scales_by_their_range() {
        let _seeded = crate::random::seed(4);
        let matrix = Tensor::randn([512, 512], (Kind::Float, Device::Cpu)) * 0.02;
        let [single, double] =
            [ScaleFormat::Float32, ScaleFormat::Int8].map(|format| Nf4::quantize(&matrix, format));
        let bits = 8.0 * double.bytes() as f64 / (512.0 * 512.0);
        assert!((bits - 4.127).abs() < 1e-3, "{bits}");
        let (wanted, found) = (single.scales.values(), double.scales.values());
        let mean = wanted.mean(Kind::Float);
        let distances = (&wanted - &mean).view([-1, SCALE_BLOCK]);
        // Half of one of 127 steps.
        let bounds = distances.abs().amax([1], true) / 254.0 * 1.001;
        let off = (found - &wanted).abs().view([-1, SCALE_BLOCK]);
        assert!(bool::try_from(off.le_tensor(&bounds).all()).unwrap());
        assert!(off.max().double_value(&[]) > 0.0);
        let error = |nf4: &Nf4| {
            let off = nf4.dequantize() - &matrix;
            off.square().mean(Kind::Double).double_value(&[])
        };
        assert!(error(&double) < 1.01 * error(&single));
    }

    fn same_bits(a: &Tensor, b: &Tensor) -> bool {
        let bytes = |tensor: &Tensor| tensor.contiguous().view([-1]).view_dtype(Kind::Uint8);
        a.size() == b.size() && a.kind() == b.kind() && bytes(a).equal(&bytes(b))
    }

    /// A matrix whose elements and scales vary in size.
    fn uneven(shape: [i64; 2], kind: Kind) -> Tensor {
        let options = (Kind::Float, Device::Cpu);
        let sizes = Tensor::randn([shape[0], 1], options).exp();
        (Tensor::randn(shape, options) * sizes * 0.02).to_kind(kind)
    }

    fn formats() -> impl Strategy<Value = ScaleFormat> {
        prop_oneof![Just(ScaleFormat::Float32), Just(ScaleFormat::Int8)]
    }

    fn kinds() -> impl Strategy<Value = Kind> {
        prop_oneof![Just(Kind::Float), Just(Kind::BFloat16)]
    }

    /// A result and the gradient of `x`, for a loss that weighs every element by `weights`.
    fn differentiate(x: &Tensor, weights: &Tensor, f: impl Fn(&Tensor) -> Tensor) -> [Tensor; 2] {
        let leaf = x.detach().copy().set_requires_grad(true);
        let y = f(&leaf);
        (&y * weights).sum(Kind::Double).backward();
        [y.detach(), leaf.grad()]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn every_instruction_set_and_the_kernel_give_the_bits_of_libtorch(
            rows in 1i64..80, columns in 1i64..300, kind in kinds(), format in formats(), seed: i64,
        ) {
            let _seeded = crate::random::seed(seed);
            let matrix = uneven([rows, columns], kind);
            let nf4 = Nf4::quantize(&matrix, format);
            let wanted = nf4.dequantize_by_libtorch();
            let (codes, scales) = quantize_by_libtorch(&matrix);
            for set in InstructionSet::available() {
                let found = fused::quantize(&matrix, &middles(), BLOCK, set);
                prop_assert!(same_bits(&found.0, &codes) && same_bits(&found.1, &scales), "{set:?}");
                let found = nf4.with_parts(|parts| fused::dequantize(parts, [rows, columns], kind, set));
                prop_assert!(same_bits(&found, &wanted), "{set:?}");
            }
            prop_assert!(same_bits(&nf4.dequantize(), &wanted));
            let _emulation = Emulation::begin();
            prop_assert!(same_bits(&nf4.dequantize(), &wanted), "the kernel");
        }

        #[test]
        fn products_and_gradients_are_those_of_the_dequantized_matrix(
            tokens in 1i64..50, rows in 1i64..200, columns in 1i64..300, kind in kinds(),
            format in formats(), biased: bool, emulated: bool, seed: i64,
        ) {
            let _emulation = emulated.then(Emulation::begin);
            let _seeded = crate::random::seed(seed);
            let nf4 = Nf4::quantize(&uneven([rows, columns], kind), format);
            let random = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, Device::Cpu)).to_kind(kind);
            let (x, weights) = (random(&[1, tokens, columns]), random(&[1, tokens, rows]));
            let bias = biased.then(|| random(&[rows]));
            let found = differentiate(&x, &weights, |x| nf4.linear(x, bias.as_ref()));
            let [x, weights, matrix] = [&x, &weights, &nf4.dequantize()].map(|one| one.to_kind(Kind::Double));
            let bias = bias.map(|bias| bias.to_kind(Kind::Double));
            let wanted = differentiate(&x, &weights, |x| x.linear(&matrix, bias.as_ref()));
            // The result is rounded to 8 bits in bf16, once for the sum and once for the bias.
            let tolerance = if kind == Kind::Float { 1e-6 } else { 1e-2 };
            for (found, wanted) in found.iter().zip(&wanted) {
                prop_assert_eq!(found.kind(), kind);
                let off = (found.to_kind(Kind::Double) - wanted).norm().double_value(&[]);
                prop_assert!(off <= tolerance * wanted.norm().double_value(&[]), "{off:e}");
            }
        }
    }
}
