use proptest::prelude::*;

use super::*;
use crate::format::PANEL;
use crate::matrix::{Inputs, Matrix};
use crate::shared::Shared;

const FORMATS: [Format; 3] = [Format::Float32, Format::Bf16, Format::Int8];

/// Sums in float64 of the numbers that a format keeps of both sides.
fn wanted(format: Format, x: &[f32], w: &[f32]) -> f64 {
    let kept = |row: &[f32]| {
        let matrix = Matrix::pack(format, [1, row.len()], |_| row);
        let mut out = vec![0.0; row.len()];
        matrix.unpack(0, &mut out);
        out
    };
    let products = kept(x).into_iter().zip(kept(w));
    products.map(|(a, b)| f64::from(a) * f64::from(b)).sum()
}

fn product(kernel: Kernel, format: Format, rows: &[Vec<f32>], matrix: &Matrix) -> Vec<f32> {
    let stride = format.input_words(rows[0].len());
    let mut words = vec![0; rows.len() * stride];
    for (row, out) in rows.iter().zip(words.chunks_mut(stride)) {
        format.pack(row, out);
    }
    let width = matrix.panels() * PANEL;
    let mut y = vec![0.5; rows.len() * width];
    let inputs = Inputs {
        words: Shared::new(&mut words),
        stride,
    };
    let matrix = matrix.with_kernel(kernel);
    for panel in 0..matrix.panels() {
        // SAFETY: the buffers have these sizes.
        unsafe {
            let y = y.as_mut_ptr().add(panel * PANEL);
            matrix.add(panel, inputs, [0, rows.len()], y, width);
        }
    }
    y
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Each kernel computes the sums of float64 up to rounding, and each row as if it were alone.
    #[test]
    fn kernels_compute_matrix_products(
        rows in 1usize..27,
        inputs in 1usize..200,
        outputs in 1usize..70,
        seed in 0u32..1000,
    ) {
        let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
        let mut number = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let x: Vec<Vec<f32>> = (0..rows).map(|_| (0..inputs).map(|_| number()).collect()).collect();
        let w: Vec<f32> = (0..outputs * inputs).map(|_| number()).collect();
        let row = |i: usize| &w[i * inputs..(i + 1) * inputs];
        for format in FORMATS {
            let matrix = Matrix::pack(format, [outputs, inputs], row);
            let width = matrix.panels() * PANEL;
            for isa in [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Amx] {
                if isa > best_isa(format) {
                    continue;
                }
                let kernel = Kernel::of(format, isa);
                let found = product(kernel, format, &x, &matrix);
                for (index, x) in x.iter().enumerate() {
                    for output in 0..outputs {
                        let (a, b) = (found[index * width + output], wanted(format, x, row(output)));
                        let off = (f64::from(a) - 0.5 - b).abs();
                        prop_assert!(off < 2e-6 * inputs as f64 + 1e-6, "{format:?} {isa:?}: {a} for {b}");
                    }
                }
                let last = product(kernel, format, &x[rows - 1..], &matrix);
                prop_assert_eq!(&found[(rows - 1) * width..], &last[..]);
            }
        }
    }
}
