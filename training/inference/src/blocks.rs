//! ggml's block formats of numbers (`ggml-common.h`).

use half::{bf16, f16};

/// A format in which GGUF files store numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
}

impl BlockKind {
    /// The format with a type code; `None` for those that are not supported.
    pub fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            30 => Self::Bf16,
            _ => return None,
        })
    }

    /// The type code in the file.
    pub fn code(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q4_1 => 3,
            Self::Q5_0 => 6,
            Self::Q5_1 => 7,
            Self::Q8_0 => 8,
            Self::Bf16 => 30,
        }
    }

    /// Number of elements per block.
    pub fn elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            _ => 32,
        }
    }

    /// Bytes per block.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
        }
    }

    /// Decodes whole blocks; bytes after the last one are left out.
    pub fn decode(self, bytes: &[u8]) -> Vec<f32> {
        let blocks = bytes.chunks_exact(self.bytes());
        let mut numbers = Vec::with_capacity(blocks.len() * self.elements());
        for block in blocks {
            self.decode_block(block, &mut numbers);
        }
        numbers
    }

    /// Encodes numbers as F32, F16 or Q8_0. Q8_0 needs a multiple of 32 numbers.
    ///
    /// # Errors
    /// What is wrong with the numbers, or with the format.
    pub fn encode(self, numbers: &[f32]) -> Result<Vec<u8>, String> {
        let max = numbers.iter().fold(0f32, |max, x| max.max(x.abs()));
        // A maximum ignores NaN; a sum does not.
        if !numbers.iter().sum::<f32>().is_finite() && numbers.iter().any(|x| !x.is_finite()) {
            return Err("it contains NaN or infinite values".into());
        }
        match self {
            Self::F32 => Ok(numbers.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Self::F16 if max > f16::MAX.to_f32() => Err(format!("{max} is too large for 16 bits")),
            Self::F16 => {
                let half = |x: &f32| f16::from_f32(*x).to_le_bytes();
                Ok(numbers.iter().flat_map(half).collect())
            }
            Self::Q8_0 => Ok(numbers.chunks(32).flat_map(q8_0).collect()),
            other => Err(format!("{other:?} can be read but not written")),
        }
    }

    fn decode_block(self, block: &[u8], out: &mut Vec<f32>) {
        let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        match self {
            Self::F32 => out.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
            Self::F16 => out.push(half(0)),
            Self::Bf16 => out.push(bf16::from_le_bytes([block[0], block[1]]).to_f32()),
            Self::Q4_0 => nibbles(&block[2..], 0, out, |n| half(0) * (f32::from(n) - 8.0)),
            Self::Q4_1 => nibbles(&block[4..], 0, out, |n| half(0) * f32::from(n) + half(2)),
            Self::Q5_0 => {
                let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
                nibbles(&block[6..], high, out, |n| half(0) * (f32::from(n) - 16.0));
            }
            Self::Q5_1 => {
                let high = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
                nibbles(&block[8..], high, out, |n| half(0) * f32::from(n) + half(2));
            }
            Self::Q8_0 => out.extend(block[2..].iter().map(|&b| half(0) * f32::from(b as i8))),
        }
    }
}

/// 32 numbers as a scale and bytes, with ggml's rounding.
fn q8_0(numbers: &[f32]) -> [u8; 34] {
    let scale = numbers.iter().fold(0f32, |max, x| max.max(x.abs())) / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let mut block = [0; 34];
    block[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
    for (byte, number) in block[2..].iter_mut().zip(numbers) {
        *byte = (number * inverse).round() as i8 as u8;
    }
    block
}

/// Decodes 32 4-bit numbers, low nibbles first, with a fifth bit from `high`.
fn nibbles(bytes: &[u8], high: u32, out: &mut Vec<f32>, number: impl Fn(u8) -> f32) {
    let fifth = |index: usize| (((high >> index) & 1) as u8) << 4;
    for (index, byte) in bytes.iter().enumerate() {
        out.push(number((byte & 15) | fifth(index)));
    }
    for (index, byte) in bytes.iter().enumerate() {
        out.push(number((byte >> 4) | fifth(index + 16)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_decode_as_ggml_defines_them() {
        let half = |x: f32| f16::from_f32(x).to_le_bytes();
        let mut q4_1 = [half(0.5), half(-1.0)].concat();
        q4_1.extend([0x31; 16]);
        let numbers = BlockKind::Q4_1.decode(&q4_1);
        assert_eq!(numbers[..16], [-0.5; 16]);
        assert_eq!(numbers[16..], [0.5; 16]);

        let mut q5_0 = half(2.0).to_vec();
        q5_0.extend((1u32 | 1 << 31).to_le_bytes());
        q5_0.extend([0x00; 16]);
        let numbers = BlockKind::Q5_0.decode(&q5_0);
        assert_eq!((numbers[0], numbers[1], numbers[31]), (0.0, -32.0, 0.0));

        let mut q8 = half(0.25).to_vec();
        q8.extend([0xff; 32]);
        assert_eq!(BlockKind::Q8_0.decode(&q8), [-0.25; 32]);
    }
}
