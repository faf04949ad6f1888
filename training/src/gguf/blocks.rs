//! Quantised blocks, as ggml lays them out.

use half::{bf16, f16};

/// How numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockKind {
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
    pub(super) fn from_code(code: u32) -> Option<Self> {
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

    /// Numbers of one block.
    pub(super) fn elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            _ => 32,
        }
    }

    /// Bytes of one block.
    pub(super) fn bytes(self) -> usize {
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

    /// The numbers of whole blocks.
    pub(super) fn decode(self, bytes: &[u8]) -> Vec<f32> {
        let blocks = bytes.chunks_exact(self.bytes());
        let mut numbers = Vec::with_capacity(blocks.len() * self.elements());
        for block in blocks {
            self.decode_block(block, &mut numbers);
        }
        numbers
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

/// 32 numbers of four bits, the low halves first, with a fifth bit from `high`.
fn nibbles(bytes: &[u8], high: u32, out: &mut Vec<f32>, number: impl Fn(u8) -> f32) {
    let fifth = |place: usize| (((high >> place) & 1) as u8) << 4;
    for (place, byte) in bytes.iter().enumerate() {
        out.push(number((byte & 15) | fifth(place)));
    }
    for (place, byte) in bytes.iter().enumerate() {
        out.push(number((byte >> 4) | fifth(place + 16)));
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
