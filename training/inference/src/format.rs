//! Number formats of weights, and how rows of activations are packed for products with them.

use crate::isa::vectorized;

/// Outputs that are computed side by side: two vectors of AVX-512.
pub(crate) const PANEL: usize = 32;
/// Inputs that share a scale in int8.
pub(crate) const GROUP: usize = 32;
/// Words of a group of int8.
const GROUP_WORDS: usize = GROUP / 4;
/// Words of a group of int8 weights: the numbers and the scale.
pub(crate) const WEIGHT_GROUP: usize = GROUP_WORDS + 1;
/// Words of a group of int8 activations: the numbers, the scale, and what to subtract.
pub(crate) const INPUT_GROUP: usize = GROUP_WORDS + 2;
/// int8 weights are stored with this offset, because the instructions multiply unsigned by signed numbers.
pub(crate) const OFFSET: i32 = 128;

/// How weights are kept, and what they are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Exact.
    Float32,
    /// bfloat16 weights, activations and cache; sums are float32.
    Bf16,
    /// int8 weights and activations with a scale for each 32 inputs; the cache is bfloat16, sums are float32.
    Int8,
}

impl Format {
    /// Steps of a product over `columns` inputs: an input, a pair, or a group.
    pub(crate) fn units(self, columns: usize) -> usize {
        match self {
            Self::Float32 => columns,
            Self::Bf16 => columns.div_ceil(2),
            Self::Int8 => columns.div_ceil(GROUP),
        }
    }

    /// Words of one output in each unit of packed weights.
    pub(crate) fn weight_words(self) -> usize {
        match self {
            Self::Float32 | Self::Bf16 => 1,
            Self::Int8 => WEIGHT_GROUP,
        }
    }

    /// Words of a packed row of `columns` activations.
    pub(crate) fn input_words(self, columns: usize) -> usize {
        let words = match self {
            Self::Float32 | Self::Bf16 => 1,
            Self::Int8 => INPUT_GROUP,
        };
        self.units(columns) * words
    }

    /// The format of keys, values, queries and probabilities.
    pub(crate) fn of_cache(self) -> Self {
        match self {
            Self::Float32 => Self::Float32,
            Self::Bf16 | Self::Int8 => Self::Bf16,
        }
    }

    /// Packs a row of activations into `out`, of [`Format::input_words`].
    pub(crate) fn pack(self, row: &[f32], out: &mut [u32]) {
        match self {
            Self::Float32 => pack_float32(row, out),
            Self::Bf16 => pack_bf16(row, out),
            Self::Int8 => pack_int8(row, out),
        }
    }
}

/// The nearest bfloat16, ties to even, of a finite number.
#[inline(always)]
pub(crate) fn to_bf16(value: f32) -> u32 {
    let bits = value.to_bits();
    (bits.wrapping_add(0x7fff + ((bits >> 16) & 1))) >> 16
}

/// Two bfloat16 in a word, the first in the low half.
#[inline(always)]
pub(crate) fn pair(low: f32, high: f32) -> u32 {
    to_bf16(low) | to_bf16(high) << 16
}

vectorized! {
    fn pack_float32(row: &[f32], out: &mut [u32]) {
        for (word, value) in out.iter_mut().zip(row) {
            *word = value.to_bits();
        }
    }
}

vectorized! {
    fn pack_bf16(row: &[f32], out: &mut [u32]) {
        let (pairs, rest) = row.as_chunks::<2>();
        for (word, &[low, high]) in out.iter_mut().zip(pairs) {
            *word = pair(low, high);
        }
        if let ([last], Some(word)) = (rest, out.get_mut(pairs.len())) {
            *word = pair(*last, 0.0);
        }
    }
}

vectorized! {
    fn pack_int8(row: &[f32], out: &mut [u32]) {
        let groups = out.as_chunks_mut::<INPUT_GROUP>().0;
        for (values, group) in row.chunks(GROUP).zip(groups) {
            let mut whole = [0.0; GROUP];
            whole[..values.len()].copy_from_slice(values);
            let (numbers, scale) = quantize(&whole);
            let mut sum = 0;
            for number in numbers {
                sum += number;
            }
            for (word, four) in group.iter_mut().zip(numbers.as_chunks::<4>().0) {
                *word = bytes(four);
            }
            group[GROUP_WORDS] = scale.to_bits();
            group[GROUP_WORDS + 1] = (-OFFSET * sum) as u32;
        }
    }
}

/// Numbers from -127 to 127, and what one of them is worth.
#[inline(always)]
pub(crate) fn quantize(values: &[f32; GROUP]) -> ([i32; GROUP], f32) {
    let mut lanes = [0f32; 16];
    for part in values.as_chunks::<16>().0 {
        for (lane, value) in lanes.iter_mut().zip(part) {
            *lane = lane.max(value.abs());
        }
    }
    let max = lanes.into_iter().fold(0f32, f32::max);
    let scale = max / 127.0;
    let inverse = if max > 0.0 { 127.0 / max } else { 0.0 };
    // Adding this constant rounds to the nearest integer, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let mut numbers = [0; GROUP];
    for (number, value) in numbers.iter_mut().zip(values) {
        *number = (value * inverse + ROUND).to_bits() as i32 - ROUND.to_bits() as i32;
    }
    (numbers, scale)
}

/// The low bytes of four numbers in a word.
#[inline(always)]
pub(crate) fn bytes(four: &[i32; 4]) -> u32 {
    let byte = |index: usize| (four[index] & 0xff) as u32;
    byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24
}
