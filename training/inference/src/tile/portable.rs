//! Kernels in plain Rust: for other processors, and what the others are tested against.

use super::{Kernel, Tile, by_rows};
use crate::format::{Format, INPUT_GROUP, PANEL, WEIGHT_GROUP};

pub(super) fn kernel(format: Format) -> Kernel {
    let run = match format {
        Format::Float32 => float32,
        Format::Bf16 => bf16,
        Format::Int8 => int8,
    };
    Kernel { run, rows: 4 }
}

by_rows!(float32, float32_rows, 1 2 3 4);
by_rows!(bf16, bf16_rows, 1 2 3 4);
by_rows!(int8, int8_rows, 1 2 3 4);

/// Calls `step(sum, x, w)` for each unit, row and output.
#[inline(always)]
unsafe fn product<const ROWS: usize>(tile: Tile, step: impl Fn(f32, u32, u32) -> f32) {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        for row in 0..ROWS {
            let sums = &mut *tile.y.add(row * tile.y_stride).cast::<[f32; PANEL]>();
            for unit in 0..tile.units {
                let x = *tile.x.add(row * tile.x_stride + unit);
                let w = &*tile.w.add(unit * PANEL).cast::<[u32; PANEL]>();
                for (sum, &w) in sums.iter_mut().zip(w) {
                    *sum = step(*sum, x, w);
                }
            }
        }
    }
}

unsafe fn float32_rows<const ROWS: usize>(tile: Tile) {
    let step = |sum, x, w| sum + f32::from_bits(x) * f32::from_bits(w);
    // SAFETY: passed on to the caller.
    unsafe { product::<ROWS>(tile, step) }
}

unsafe fn bf16_rows<const ROWS: usize>(tile: Tile) {
    let low = |word: u32| f32::from_bits(word << 16);
    let high = |word: u32| f32::from_bits(word & 0xffff_0000);
    let step = |sum, x, w| sum + high(x) * high(w) + low(x) * low(w);
    // SAFETY: passed on to the caller.
    unsafe { product::<ROWS>(tile, step) }
}

unsafe fn int8_rows<const ROWS: usize>(tile: Tile) {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        for row in 0..ROWS {
            let sums = &mut *tile.y.add(row * tile.y_stride).cast::<[f32; PANEL]>();
            for unit in 0..tile.units {
                let x = tile.x.add(row * tile.x_stride + unit * INPUT_GROUP);
                let [x @ .., scale, correction] = &*x.cast::<[u32; INPUT_GROUP]>();
                let w = tile.w.add(unit * WEIGHT_GROUP * PANEL);
                let [w @ .., scales] = &*w.cast::<[[u32; PANEL]; WEIGHT_GROUP]>();
                for (output, sum) in sums.iter_mut().enumerate() {
                    let words = x.iter().zip(w);
                    let dot: i32 = words.map(|(&x, w)| dot_bytes(x, w[output])).sum();
                    let worth = f32::from_bits(*scale) * f32::from_bits(scales[output]);
                    *sum += (dot + *correction as i32) as f32 * worth;
                }
            }
        }
    }
}

/// The products of four signed and four unsigned bytes.
fn dot_bytes(signed: u32, unsigned: u32) -> i32 {
    let (signed, unsigned) = (signed.to_le_bytes(), unsigned.to_le_bytes());
    let products = signed.into_iter().zip(unsigned);
    products
        .map(|(s, u)| i32::from(s as i8) * i32::from(u))
        .sum()
}
