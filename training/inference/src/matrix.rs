//! Weights, packed once for the kernels.

use crate::format::{Format, GROUP, OFFSET, PANEL, WEIGHT_GROUP, bytes, pair, quantize};
use crate::shared::Shared;
use crate::tile::{Kernel, Tile};
use crate::words::Words;

/// A matrix `[outputs, inputs]` in panels of [`PANEL`] outputs, the last one filled up with zeros.
#[derive(Debug)]
pub(crate) struct Matrix {
    format: Format,
    kernel: Kernel,
    inputs: usize,
    panels: usize,
    words: Words,
}

/// Rows of packed activations.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) words: Shared<'a, u32>,
    /// Words from one row to the next.
    pub(crate) stride: usize,
}

impl Matrix {
    /// A matrix of `outputs` rows of `inputs` zeros, to be [`set`](Self::set).
    pub(crate) fn zeros(format: Format, [outputs, inputs]: [usize; 2]) -> Self {
        let panels = outputs.div_ceil(PANEL);
        let panel_words = format.units(inputs) * format.weight_words() * PANEL;
        Self {
            format,
            kernel: Kernel::best(format),
            inputs,
            panels,
            words: Words::zeros(panels * panel_words),
        }
    }

    /// Packs the numbers of an output.
    pub(crate) fn set(&mut self, output: usize, values: &[f32]) {
        let (words, format) = (self.panel_words(), self.format);
        let panel = &mut self.words[output / PANEL * words..][..words];
        pack_output(format, values, output % PANEL, panel);
    }

    /// Packs `outputs` rows of `inputs` numbers.
    #[cfg(test)]
    pub(crate) fn pack<'a>(
        format: Format,
        shape: [usize; 2],
        row: impl Fn(usize) -> &'a [f32],
    ) -> Self {
        let mut matrix = Self::zeros(format, shape);
        (0..shape[0]).for_each(|output| matrix.set(output, row(output)));
        matrix
    }

    /// A copy for another kernel.
    #[cfg(test)]
    pub(crate) fn with_kernel(&self, kernel: Kernel) -> Self {
        let words = self.words.clone();
        Self {
            kernel,
            words,
            ..*self
        }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    pub(crate) fn panels(&self) -> usize {
        self.panels
    }

    fn panel_words(&self) -> usize {
        self.format.units(self.inputs) * self.format.weight_words() * PANEL
    }

    /// The numbers of an output, as they were packed.
    pub(crate) fn unpack(&self, output: usize, out: &mut [f32]) {
        let panel = &self.words[output / PANEL * self.panel_words()..][..self.panel_words()];
        let column = output % PANEL;
        let word = |index: usize| panel[index * PANEL + column];
        for (input, out) in out[..self.inputs].iter_mut().enumerate() {
            *out = match self.format {
                Format::Float32 => f32::from_bits(word(input)),
                Format::Bf16 => f32::from_bits(word(input / 2) >> (16 * (input % 2)) << 16),
                Format::Int8 => {
                    let (group, inside) = (input / GROUP * WEIGHT_GROUP, input % GROUP);
                    let byte = word(group + inside / 4).to_le_bytes()[inside % 4];
                    let scale = f32::from_bits(word(group + WEIGHT_GROUP - 1));
                    (i32::from(byte) - OFFSET) as f32 * scale
                }
            };
        }
    }

    /// Adds the products of `rows` rows of inputs, from `first` on, with a panel to `y`, whose rows are `y_stride`
    /// numbers apart.
    ///
    /// # Safety
    ///
    /// `y` must be valid for the results, and in use nowhere else; nobody may write to the inputs.
    pub(crate) unsafe fn add(
        &self,
        panel: usize,
        inputs: Inputs<'_>,
        [first, rows]: [usize; 2],
        y: *mut f32,
        y_stride: usize,
    ) {
        let start = first * inputs.stride;
        let words = self.format.input_words(self.inputs);
        assert!(words <= inputs.stride && panel < self.panels);
        let w = &self.words[panel * self.panel_words()..][..self.panel_words()];
        // SAFETY: the caller vouches for the inputs and for `y`; the panel is whole.
        unsafe {
            let tile = Tile {
                x: inputs
                    .words
                    .read(start..start + rows * inputs.stride)
                    .as_ptr(),
                x_stride: inputs.stride,
                w: w.as_ptr(),
                units: self.format.units(self.inputs),
                y,
                y_stride,
            };
            self.kernel.add(rows, tile);
        }
    }
}

/// Packs the numbers of one output into its column of a panel. Missing numbers are zeros.
fn pack_output(format: Format, values: &[f32], column: usize, panel: &mut [u32]) {
    let mut put = |index: usize, word: u32| panel[index * PANEL + column] = word;
    match format {
        Format::Float32 => {
            for (unit, value) in values.iter().enumerate() {
                put(unit, value.to_bits());
            }
        }
        Format::Bf16 => {
            for (unit, two) in values.chunks(2).enumerate() {
                put(unit, pair(two[0], two.get(1).copied().unwrap_or(0.0)));
            }
        }
        Format::Int8 => {
            for (group, values) in values.chunks(GROUP).enumerate() {
                let mut whole = [0.0; GROUP];
                whole[..values.len()].copy_from_slice(values);
                let (numbers, scale) = quantize(&whole);
                let offset = numbers.map(|number| number + OFFSET);
                for (word, four) in offset.as_chunks::<4>().0.iter().enumerate() {
                    put(group * WEIGHT_GROUP + word, bytes(four));
                }
                put(group * WEIGHT_GROUP + WEIGHT_GROUP - 1, scale.to_bits());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_numbers_are_those_of_the_matrix() {
        let (outputs, inputs) = (37, 67);
        let value = |i: usize| ((i * 37 % 101) as f32 - 50.0) / 64.0;
        let rows: Vec<f32> = (0..outputs * inputs).map(value).collect();
        let row = |i: usize| &rows[i * inputs..(i + 1) * inputs];
        let formats = [
            (Format::Float32, 0.0),
            (Format::Bf16, 0.0),
            (Format::Int8, 0.8 / 254.0),
        ];
        for (format, tolerance) in formats {
            let matrix = Matrix::pack(format, [outputs, inputs], row);
            let mut found = vec![0.0; inputs];
            for output in 0..outputs {
                matrix.unpack(output, &mut found);
                for (a, b) in found.iter().zip(row(output)) {
                    assert!((a - b).abs() <= tolerance, "{format:?}: {a} for {b}");
                }
            }
        }
    }
}
