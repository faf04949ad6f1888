//! Kernels for AVX2 and FMA. They compute the panel in two halves, because there are 16 registers.

use std::arch::x86_64::*;

use super::{Kernel, Tile, by_rows};
use crate::format::{Format, INPUT_GROUP, PANEL, WEIGHT_GROUP};

pub(super) fn kernel(format: Format) -> Kernel {
    match format {
        Format::Float32 => Kernel {
            run: float32,
            rows: 6,
        },
        Format::Bf16 => Kernel { run: bf16, rows: 4 },
        Format::Int8 => Kernel { run: int8, rows: 2 },
    }
}

by_rows!(float32, float32_rows, 1 2 3 4 5 6);
by_rows!(bf16, bf16_rows, 1 2 3 4);
by_rows!(int8, int8_rows, 1 2);

type Sums<const ROWS: usize> = [[__m256; 2]; ROWS];

#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn load<const ROWS: usize>(tile: Tile, half: usize) -> Sums<ROWS> {
    let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
    for (row, [low, high]) in sums.iter_mut().enumerate() {
        // SAFETY: the caller vouches for the rows of `y`.
        unsafe {
            let y = tile.y.add(row * tile.y_stride + half);
            *low = _mm256_loadu_ps(y);
            *high = _mm256_loadu_ps(y.add(8));
        }
    }
    sums
}

#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn store<const ROWS: usize>(tile: Tile, half: usize, sums: Sums<ROWS>) {
    for (row, [low, high]) in sums.into_iter().enumerate() {
        // SAFETY: the caller vouches for the rows of `y`.
        unsafe {
            let y = tile.y.add(row * tile.y_stride + half);
            _mm256_storeu_ps(y, low);
            _mm256_storeu_ps(y.add(8), high);
        }
    }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn float32_rows<const ROWS: usize>(tile: Tile) {
    for half in [0, PANEL / 2] {
        // SAFETY: the caller vouches for the pointers.
        unsafe {
            let mut sums = load::<ROWS>(tile, half);
            for unit in 0..tile.units {
                let w = tile.w.add(unit * PANEL + half).cast::<f32>();
                let w = [_mm256_load_ps(w), _mm256_load_ps(w.add(8))];
                for (row, sums) in sums.iter_mut().enumerate() {
                    let x = _mm256_set1_ps(*tile.x.add(row * tile.x_stride + unit).cast());
                    *sums = [
                        _mm256_fmadd_ps(x, w[0], sums[0]),
                        _mm256_fmadd_ps(x, w[1], sums[1]),
                    ];
                }
            }
            store(tile, half, sums);
        }
    }
}

/// The two bfloat16 of each word as float32: the high ones and the low ones.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn widen(words: __m256i) -> [__m256; 2] {
    let high = _mm256_and_si256(words, _mm256_set1_epi32(0xffff_0000_u32 as i32));
    let low = _mm256_slli_epi32::<16>(words);
    [_mm256_castsi256_ps(high), _mm256_castsi256_ps(low)]
}

#[target_feature(enable = "avx2,fma")]
unsafe fn bf16_rows<const ROWS: usize>(tile: Tile) {
    for half in [0, PANEL / 2] {
        // SAFETY: the caller vouches for the pointers.
        unsafe {
            let mut sums = load::<ROWS>(tile, half);
            for unit in 0..tile.units {
                let w = tile.w.add(unit * PANEL + half).cast::<__m256i>();
                let w = [
                    widen(_mm256_load_si256(w)),
                    widen(_mm256_load_si256(w.add(1))),
                ];
                for (row, sums) in sums.iter_mut().enumerate() {
                    let x = *tile.x.add(row * tile.x_stride + unit);
                    let x = widen(_mm256_set1_epi32(x as i32));
                    for (sum, w) in sums.iter_mut().zip(w) {
                        *sum = _mm256_fmadd_ps(x[0], w[0], *sum);
                        *sum = _mm256_fmadd_ps(x[1], w[1], *sum);
                    }
                }
            }
            store(tile, half, sums);
        }
    }
}

/// The bytes of each word in halves of 16 bits: the odd ones and the even ones.
#[inline]
#[target_feature(enable = "avx2")]
fn unsigned_halves(words: __m256i) -> [__m256i; 2] {
    let even = _mm256_and_si256(words, _mm256_set1_epi16(0xff));
    [_mm256_srli_epi16::<8>(words), even]
}

/// As [`unsigned_halves`], with signs.
#[inline]
#[target_feature(enable = "avx2")]
fn signed_halves(words: __m256i) -> [__m256i; 2] {
    let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(words));
    [_mm256_srai_epi16::<8>(words), even]
}

#[target_feature(enable = "avx2,fma")]
unsafe fn int8_rows<const ROWS: usize>(tile: Tile) {
    for half in [0, PANEL / 2] {
        // SAFETY: the caller vouches for the pointers.
        unsafe {
            let mut sums = load::<ROWS>(tile, half);
            for unit in 0..tile.units {
                let x = tile.x.add(unit * INPUT_GROUP);
                let w = tile.w.add(unit * WEIGHT_GROUP * PANEL + half);
                let mut dots = [[_mm256_setzero_si256(); 2]; ROWS];
                for (row, dots) in dots.iter_mut().enumerate() {
                    let correction = *x.add(row * tile.x_stride + INPUT_GROUP - 1);
                    *dots = [_mm256_set1_epi32(correction as i32); 2];
                }
                for word in 0..WEIGHT_GROUP - 1 {
                    let w = w.add(word * PANEL).cast::<__m256i>();
                    let w = [
                        unsigned_halves(_mm256_load_si256(w)),
                        unsigned_halves(_mm256_load_si256(w.add(1))),
                    ];
                    for (row, dots) in dots.iter_mut().enumerate() {
                        let x = *x.add(row * tile.x_stride + word);
                        let x = signed_halves(_mm256_set1_epi32(x as i32));
                        for (dot, w) in dots.iter_mut().zip(w) {
                            let odd = _mm256_madd_epi16(w[0], x[0]);
                            let even = _mm256_madd_epi16(w[1], x[1]);
                            *dot = _mm256_add_epi32(*dot, _mm256_add_epi32(odd, even));
                        }
                    }
                }
                let scales = w.add((WEIGHT_GROUP - 1) * PANEL).cast::<f32>();
                let scales = [_mm256_load_ps(scales), _mm256_load_ps(scales.add(8))];
                for (row, (sums, dots)) in sums.iter_mut().zip(dots).enumerate() {
                    let scale = x.add(row * tile.x_stride + INPUT_GROUP - 2).cast::<f32>();
                    let scale = _mm256_set1_ps(*scale);
                    for part in 0..2 {
                        let worth = _mm256_mul_ps(scale, scales[part]);
                        let dot = _mm256_cvtepi32_ps(dots[part]);
                        sums[part] = _mm256_fmadd_ps(dot, worth, sums[part]);
                    }
                }
            }
            store(tile, half, sums);
        }
    }
}
