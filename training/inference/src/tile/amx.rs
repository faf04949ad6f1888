//! Kernels for AMX, whose registers are tiles of 16 rows of 64 bytes.
//!
//! Rust has no stable functions for these instructions, so each kernel is one piece of assembly. A product of two tiles
//! starts its sums at zero and adds them to the result at the end, so results do not depend on the other rows.

use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::OnceLock;

use super::avx512::prefetch;
use super::{Kernel, Tile};
use crate::format::{Format, PANEL};

/// Rows of a tile.
const ROWS: usize = 16;
/// Words of a row of a tile: pairs of bfloat16, or numbers of float32.
const WORDS: usize = 16;
/// Up to so many rows are computed without tiles: they wait for the memory, which tiles do not ask for weights in time.
const FEW: usize = 2;

/// Whether the processor has AMX with bfloat16, and the system lets this process use it.
pub(super) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| has_instructions() && is_permitted())
}

fn has_instructions() -> bool {
    const BF16: u32 = 1 << 22;
    const TILE: u32 = 1 << 24;
    const BOTH: u32 = BF16 | TILE;
    is_x86_feature_detected!("avx512bf16")
        && std::arch::x86_64::__cpuid_count(7, 0).edx & BOTH == BOTH
}

/// Asks Linux for the registers, which it saves only for processes that asked.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_int = 0x1023;
    const XTILEDATA: libc::c_int = 18;
    // SAFETY: the call only allows this process to use the registers.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

pub(super) fn kernel(format: Format) -> Option<Kernel> {
    match format {
        Format::Bf16 => Some(Kernel {
            run: bf16,
            rows: 2 * ROWS,
        }),
        Format::Float32 | Format::Int8 => None,
    }
}

/// What `ldtilecfg` reads: rows and bytes of a row of each register.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shapes {
    /// Four tiles of results (0 to 3), two of activations (4, 5) with up to 16 rows each, and two of weights (6, 7).
    fn new(rows: [usize; 2], units: usize) -> Self {
        let mut shapes = Self {
            palette: 1,
            start: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        let [first, second] = rows;
        let whole = WORDS * 4;
        let registers = [
            (first, whole),
            (first, whole),
            (second, whole),
            (second, whole),
            (first, units * 4),
            (second, units * 4),
            (units, whole),
            (units, whole),
        ];
        for (register, (rows, bytes)) in registers.into_iter().enumerate() {
            if rows > 0 {
                shapes.rows[register] = rows as u8;
                shapes.row_bytes[register] = bytes as u16;
            }
        }
        shapes
    }
}

/// # Safety
///
/// As [`Kernel::add`], for up to 32 rows; the machine must have AMX.
unsafe fn bf16(rows: usize, tile: Tile) {
    let split = [rows.min(ROWS), rows.saturating_sub(ROWS)];
    let (steps, rest) = (tile.units / WORDS, tile.units % WORDS);
    // SAFETY: passed on to the caller.
    unsafe {
        if rows <= FEW {
            return few_rows(rows, tile);
        }
        if steps > 0 {
            multiply(&Shapes::new(split, WORDS), split, steps, tile);
        }
        if rest > 0 {
            let tile = tile.after(steps * WORDS);
            multiply(&Shapes::new(split, rest), split, 1, tile);
        }
    }
}

/// Computes rows one by one, with the same roundings: for each step the products with even inputs and those with odd ones
/// are summed up, and both sums are added to the result.
///
/// # Safety
///
/// As [`bf16`].
#[target_feature(enable = "avx512f")]
unsafe fn few_rows(rows: usize, tile: Tile) {
    for row in 0..rows {
        // SAFETY: the caller vouches for the pointers.
        unsafe {
            let x = tile.x.add(row * tile.x_stride);
            let y = tile.y.add(row * tile.y_stride);
            let mut sums = [_mm512_loadu_ps(y), _mm512_loadu_ps(y.add(16))];
            for start in (0..tile.units).step_by(WORDS) {
                let mut even = [_mm512_setzero_ps(); 2];
                let mut odd = even;
                for unit in start..(start + WORDS).min(tile.units) {
                    let w = tile.w.add(unit * PANEL);
                    prefetch(w);
                    let pair = *x.add(unit);
                    let low = _mm512_set1_ps(f32::from_bits(pair << 16));
                    let high = _mm512_set1_ps(f32::from_bits(pair & 0xffff_0000));
                    for half in 0..2 {
                        let w = _mm512_load_si512(w.add(16 * half).cast());
                        let w_low = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(w));
                        let kept = _mm512_set1_epi32(0xffff_0000u32 as i32);
                        let w_high = _mm512_castsi512_ps(_mm512_and_si512(w, kept));
                        even[half] = _mm512_fmadd_ps(low, w_low, even[half]);
                        odd[half] = _mm512_fmadd_ps(high, w_high, odd[half]);
                    }
                }
                for half in 0..2 {
                    let step = _mm512_add_ps(even[half], odd[half]);
                    sums[half] = _mm512_add_ps(sums[half], step);
                }
            }
            _mm512_storeu_ps(y, sums[0]);
            _mm512_storeu_ps(y.add(16), sums[1]);
        }
    }
}

/// # Safety
///
/// As [`bf16`], for as many steps of units as the registers hold.
unsafe fn multiply(shapes: &Shapes, [_, second]: [usize; 2], steps: usize, tile: Tile) {
    let (x, y, w) = (tile.x, tile.y, tile.w);
    let (x_bytes, y_bytes) = (4 * tile.x_stride, 4 * tile.y_stride);
    // SAFETY: the caller vouches for the pointers; the registers are released at the end, and the compiler does not
    // use them.
    unsafe {
        if second == 0 {
            asm!(
                "ldtilecfg [{shapes}]",
                "tileloadd tmm0, [{y} + {y_bytes}]",
                "tileloadd tmm1, [{y} + {y_bytes} + 64]",
                "2:",
                "tileloadd tmm4, [{x} + {x_bytes}]",
                "tileloadd tmm6, [{w} + {w_bytes}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm7, [{w} + {w_bytes} + 64]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "add {x}, 64",
                "add {w}, 2048",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{y} + {y_bytes}], tmm0",
                "tilestored [{y} + {y_bytes} + 64], tmm1",
                "tilerelease",
                shapes = in(reg) shapes,
                x = inout(reg) x => _,
                x_bytes = in(reg) x_bytes,
                w = inout(reg) w => _,
                w_bytes = in(reg) 4 * PANEL,
                y = in(reg) y,
                y_bytes = in(reg) y_bytes,
                steps = inout(reg) steps => _,
                options(nostack),
            );
            return;
        }
        let (x1, y1) = (x.add(ROWS * tile.x_stride), y.add(ROWS * tile.y_stride));
        asm!(
            "ldtilecfg [{shapes}]",
            "tileloadd tmm0, [{y} + {y_bytes}]",
            "tileloadd tmm1, [{y} + {y_bytes} + 64]",
            "tileloadd tmm2, [{y1} + {y_bytes}]",
            "tileloadd tmm3, [{y1} + {y_bytes} + 64]",
            "2:",
            "tileloadd tmm4, [{x} + {x_bytes}]",
            "tileloadd tmm6, [{w} + {w_bytes}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{w} + {w_bytes} + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{x1} + {x_bytes}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {x}, 64",
            "add {x1}, 64",
            "add {w}, 2048",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{y} + {y_bytes}], tmm0",
            "tilestored [{y} + {y_bytes} + 64], tmm1",
            "tilestored [{y1} + {y_bytes}], tmm2",
            "tilestored [{y1} + {y_bytes} + 64], tmm3",
            "tilerelease",
            shapes = in(reg) shapes,
            x = inout(reg) x => _,
            x1 = inout(reg) x1 => _,
            x_bytes = in(reg) x_bytes,
            w = inout(reg) w => _,
            w_bytes = in(reg) 4 * PANEL,
            y = in(reg) y,
            y1 = in(reg) y1,
            y_bytes = in(reg) y_bytes,
            steps = inout(reg) steps => _,
            options(nostack),
        );
    }
}
