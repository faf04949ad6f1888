//! Kernels for AVX-512, with BF16 for bfloat16 and VNNI for int8.

use std::arch::x86_64::*;

use super::{Kernel, Tile, by_rows};
use crate::format::{Format, INPUT_GROUP, PANEL, WEIGHT_GROUP};

pub(super) fn kernel(format: Format) -> Kernel {
    match format {
        Format::Float32 => Kernel {
            run: float32,
            rows: 12,
        },
        Format::Bf16 => Kernel {
            run: bf16,
            rows: 12,
        },
        Format::Int8 => Kernel { run: int8, rows: 6 },
    }
}

by_rows!(float32, float32_rows, 1 2 3 4 5 6 7 8 9 10 11 12);
by_rows!(bf16, bf16_rows, 1 2 3 4 5 6 7 8 9 10 11 12);
by_rows!(int8, int8_rows, 1 2 3 4 5 6);

/// Units that weights are asked for ahead of their use. Several rows use a panel one after the other, and it is larger
/// than the first cache.
const AHEAD: usize = 16;

#[inline(always)]
pub(super) fn prefetch(w: *const u32) {
    let ahead = w.wrapping_add(AHEAD * PANEL);
    // SAFETY: prefetching has no effect but on time, whatever the address.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
        _mm_prefetch::<_MM_HINT_T0>(ahead.wrapping_add(16).cast());
    }
}

type Sums<const ROWS: usize> = [[__m512; 2]; ROWS];

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn load<const ROWS: usize>(tile: Tile) -> Sums<ROWS> {
    let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
    for (row, [low, high]) in sums.iter_mut().enumerate() {
        // SAFETY: the caller vouches for the rows of `y`.
        unsafe {
            let y = tile.y.add(row * tile.y_stride);
            *low = _mm512_loadu_ps(y);
            *high = _mm512_loadu_ps(y.add(16));
        }
    }
    sums
}

#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store<const ROWS: usize>(tile: Tile, sums: Sums<ROWS>) {
    for (row, [low, high]) in sums.into_iter().enumerate() {
        // SAFETY: the caller vouches for the rows of `y`.
        unsafe {
            let y = tile.y.add(row * tile.y_stride);
            _mm512_storeu_ps(y, low);
            _mm512_storeu_ps(y.add(16), high);
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn float32_rows<const ROWS: usize>(tile: Tile) {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        let mut sums = load::<ROWS>(tile);
        for unit in 0..tile.units {
            let w = tile.w.add(unit * PANEL).cast::<f32>();
            prefetch(w.cast());
            let w = [_mm512_load_ps(w), _mm512_load_ps(w.add(16))];
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = _mm512_set1_ps(*tile.x.add(row * tile.x_stride + unit).cast());
                *sums = [
                    _mm512_fmadd_ps(x, w[0], sums[0]),
                    _mm512_fmadd_ps(x, w[1], sums[1]),
                ];
            }
        }
        store(tile, sums);
    }
}

#[target_feature(enable = "avx512f,avx512bf16")]
unsafe fn bf16_rows<const ROWS: usize>(tile: Tile) {
    // SAFETY: the caller vouches for the pointers; vectors of the same size may hold any bits.
    unsafe {
        let pairs = |vector: __m512i| std::mem::transmute::<__m512i, __m512bh>(vector);
        let mut sums = load::<ROWS>(tile);
        for unit in 0..tile.units {
            let w = tile.w.add(unit * PANEL);
            prefetch(w);
            let low = pairs(_mm512_load_si512(w.cast()));
            let high = pairs(_mm512_load_si512(w.add(16).cast()));
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = *tile.x.add(row * tile.x_stride + unit);
                let x = pairs(_mm512_set1_epi32(x as i32));
                *sums = [
                    _mm512_dpbf16_ps(sums[0], low, x),
                    _mm512_dpbf16_ps(sums[1], high, x),
                ];
            }
        }
        store(tile, sums);
    }
}

#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn int8_rows<const ROWS: usize>(tile: Tile) {
    // SAFETY: the caller vouches for the pointers.
    unsafe {
        let mut sums = load::<ROWS>(tile);
        for unit in 0..tile.units {
            let (x, w) = (
                tile.x.add(unit * INPUT_GROUP),
                tile.w.add(unit * WEIGHT_GROUP * PANEL),
            );
            let mut dots = [[_mm512_setzero_si512(); 2]; ROWS];
            for (row, dots) in dots.iter_mut().enumerate() {
                let correction = *x.add(row * tile.x_stride + INPUT_GROUP - 1);
                *dots = [_mm512_set1_epi32(correction as i32); 2];
            }
            for word in 0..WEIGHT_GROUP - 1 {
                let w = w.add(word * PANEL);
                let w = [
                    _mm512_load_si512(w.cast()),
                    _mm512_load_si512(w.add(16).cast()),
                ];
                for (row, dots) in dots.iter_mut().enumerate() {
                    let x = _mm512_set1_epi32(*x.add(row * tile.x_stride + word) as i32);
                    *dots = [
                        _mm512_dpbusd_epi32(dots[0], w[0], x),
                        _mm512_dpbusd_epi32(dots[1], w[1], x),
                    ];
                }
            }
            let scales = w.add((WEIGHT_GROUP - 1) * PANEL).cast::<f32>();
            let scales = [_mm512_load_ps(scales), _mm512_load_ps(scales.add(16))];
            for (row, (sums, dots)) in sums.iter_mut().zip(dots).enumerate() {
                let scale = x.add(row * tile.x_stride + INPUT_GROUP - 2).cast::<f32>();
                let scale = _mm512_set1_ps(*scale);
                for half in 0..2 {
                    let worth = _mm512_mul_ps(scale, scales[half]);
                    let dot = _mm512_cvtepi32_ps(dots[half]);
                    sums[half] = _mm512_fmadd_ps(dot, worth, sums[half]);
                }
            }
        }
        store(tile, sums);
    }
}
