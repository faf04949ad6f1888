//! The kernels of matrix products: up to [`Kernel::rows`] rows of activations times one panel of weights.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use crate::format::Format;
#[cfg(target_arch = "x86_64")]
use crate::format::PANEL;
use crate::isa::Isa;

/// Adds to `y[row][output]` the products of the rows of `x` with the `PANEL` outputs of `w`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile {
    /// Packed activations, and words from one row to the next.
    pub(crate) x: *const u32,
    pub(crate) x_stride: usize,
    /// A panel: for each unit, `PANEL` outputs side by side; starts on a cache line.
    pub(crate) w: *const u32,
    /// Units of the sum, as [`Format::units`].
    pub(crate) units: usize,
    /// Results, and numbers from one row to the next.
    pub(crate) y: *mut f32,
    pub(crate) y_stride: usize,
}

impl Tile {
    /// What is left of the sum after `units` words of each row, in a format of one word for a unit.
    ///
    /// # Safety
    ///
    /// There must be as many.
    #[cfg(target_arch = "x86_64")]
    unsafe fn after(self, units: usize) -> Self {
        // SAFETY: passed on to the caller.
        unsafe {
            Self {
                x: self.x.add(units),
                w: self.w.add(units * PANEL),
                units: self.units - units,
                ..self
            }
        }
    }
}

type RowsFn = unsafe fn(usize, Tile);

/// The kernel of a format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    run: RowsFn,
    /// The most rows that it computes at once.
    rows: usize,
}

impl Kernel {
    /// The fastest of this machine.
    pub(crate) fn best(format: Format) -> Self {
        Self::of(format, best_isa(format))
    }

    /// The one for an instruction set that the machine has.
    pub(crate) fn of(format: Format, isa: Isa) -> Self {
        match isa {
            Isa::Portable => portable::kernel(format),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::kernel(format),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::kernel(format),
            #[cfg(target_arch = "x86_64")]
            Isa::Amx => amx::kernel(format).unwrap_or_else(|| avx512::kernel(format)),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 | Isa::Amx => portable::kernel(format),
        }
    }

    /// Computes any number of rows. Each result is the same for any number.
    ///
    /// # Safety
    ///
    /// For each of the rows, `x` and `y` must be valid for the words and the `PANEL` numbers, and nobody else may
    /// use those of `y`. `w` must be valid for the panel.
    pub(crate) unsafe fn add(self, rows: usize, tile: Tile) {
        let parts = rows.div_ceil(self.rows).max(1);
        let mut start = 0;
        for part in 1..=parts {
            let end = rows * part / parts;
            // SAFETY: a part of what the caller vouches for; the processor has what the kernel needs.
            unsafe {
                let part = Tile {
                    x: tile.x.add(start * tile.x_stride),
                    y: tile.y.add(start * tile.y_stride),
                    ..tile
                };
                (self.run)(end - start, part);
            }
            start = end;
        }
    }
}

/// The best instruction set for a format: AVX-512 needs BF16 or VNNI for the small ones, and AMX has bfloat16.
fn best_isa(format: Format) -> Isa {
    let best = Isa::detect();
    #[cfg(target_arch = "x86_64")]
    {
        let extended = match format {
            Format::Float32 => true,
            Format::Bf16 => is_x86_feature_detected!("avx512bf16"),
            Format::Int8 => is_x86_feature_detected!("avx512vnni"),
        };
        if !extended {
            return best.min(Isa::Avx2);
        }
        if amx::is_available() && amx::kernel(format).is_some() {
            return Isa::Amx;
        }
    }
    best
}

/// A function that calls `$kernel::<ROWS>` for a number of rows that is only known at run time.
macro_rules! by_rows {
    ($name:ident, $kernel:ident, $($rows:literal)+) => {
        unsafe fn $name(rows: usize, tile: $crate::tile::Tile) {
            // SAFETY: passed on to the caller.
            unsafe {
                match rows {
                    0 => {}
                    $($rows => $kernel::<$rows>(tile),)+
                    _ => unreachable!("{rows} rows in one tile"),
                }
            }
        }
    };
}
pub(crate) use by_rows;

#[cfg(test)]
mod tests;
