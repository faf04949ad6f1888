//! Elementwise operations on rows. They are plain loops that are compiled for each instruction set, without fused
//! multiplication and addition, so all give the same numbers.

use crate::cache::PAGE;
use crate::format::PANEL;
use crate::isa::vectorized;

const LANES: usize = 16;

/// Combines `of(element)` of a slice in lanes, and the lanes pair by pair.
#[inline(always)]
fn fold(
    values: &[f32],
    start: f32,
    of: impl Fn(f32) -> f32,
    combine: impl Fn(f32, f32) -> f32,
) -> f32 {
    let mut lanes = [start; LANES];
    let (parts, rest) = values.as_chunks::<LANES>();
    for part in parts {
        for (lane, &value) in lanes.iter_mut().zip(part) {
            *lane = combine(*lane, of(value));
        }
    }
    let mut step = LANES / 2;
    while step > 0 {
        for lane in 0..step {
            lanes[lane] = combine(lanes[lane], lanes[lane + step]);
        }
        step /= 2;
    }
    rest.iter()
        .fold(lanes[0], |sum, &value| combine(sum, of(value)))
}

/// The sum of `of(element)` over a slice.
#[inline(always)]
fn sum(values: &[f32], of: impl Fn(f32) -> f32) -> f32 {
    fold(values, 0.0, of, |a, b| a + b)
}

#[inline(always)]
fn max(values: &[f32]) -> f32 {
    fold(values, f32::NEG_INFINITY, |value| value, larger)
}

/// The larger of two numbers; the first if they are not comparable.
#[inline(always)]
fn larger(a: f32, b: f32) -> f32 {
    if b > a { b } else { a }
}

/// The exponential function, off by at most 2 units in the last place; 0 below -87.
#[inline(always)]
fn exp(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts, so that their products with small integers are exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Adding this constant rounds to the nearest integer, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let clamped = if x < -87.0 { -87.0 } else { x };
    let clamped = if clamped > 88.0 { 88.0 } else { clamped };
    let shifted = clamped * LOG2_E + ROUND;
    let power = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let whole = shifted - ROUND;
    let r = clamped - whole * LN2_HIGH - whole * LN2_LOW;
    // Cephes, `expf`.
    let mut p = 1.987_569_1e-4;
    for c in [
        1.398_199_9e-3,
        8.333_452e-3,
        4.166_579_6e-2,
        1.666_666_5e-1,
        5e-1,
    ] {
        p = p * r + c;
    }
    let value = p * r * r + r + 1.0;
    let scaled = value * f32::from_bits((power.wrapping_add(127) as u32) << 23);
    if x < -87.0 { 0.0 } else { scaled }
}

vectorized! {
    /// `x / rms(x) · weight` into `out`.
    pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        let mean = sum(x, |x| x * x) / x.len() as f32;
        let scale = 1.0 / (mean + eps).sqrt();
        for ((out, &x), &w) in out.iter_mut().zip(x).zip(weight) {
            *out = x * scale * w;
        }
    }
}

vectorized! {
    /// `silu(gate) · up` into `out`.
    pub(crate) fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate / (1.0 + exp(-gate)) * up;
        }
    }
}

vectorized! {
    /// Rotates a head by the angles of a position and multiplies it by `scale`. Element i and that of the other half
    /// are a pair.
    pub(crate) fn rotate(head: &[f32], cos: &[f32], sin: &[f32], scale: f32, out: &mut [f32]) {
        let half = head.len() / 2;
        let (first, second) = head.split_at(half);
        let (out_first, out_second) = out.split_at_mut(half);
        for i in 0..half {
            let (a, b, c, s) = (first[i], second[i], cos[i], sin[i]);
            out_first[i] = (a * c - b * s) * scale;
            out_second[i] = (b * c + a * s) * scale;
        }
    }
}

vectorized! {
    /// One step of a softmax over pages of keys: turns the scores of each row into weights relative to the largest
    /// score so far, and multiplies the sums so far (`total`, and the row's `width` numbers of `out`) accordingly. Only
    /// the keys `visible[row]` of the page count; none is behind the first `panels` panels.
    pub(crate) fn softmax_page(
        scores: &mut [[f32; PAGE]],
        panels: usize,
        visible: &[[usize; 2]],
        largest: &mut [f32],
        total: &mut [f32],
        out: &mut [f32],
        width: usize,
    ) {
        for (row, scores) in scores.iter_mut().enumerate() {
            let scores = &mut scores.as_chunks_mut::<PANEL>().0[..panels];
            let [from, to] = visible[row];
            for (panel, scores) in scores.iter_mut().enumerate() {
                let start = panel * PANEL;
                if from > start || to < start + PANEL {
                    for (key, score) in scores.iter_mut().enumerate() {
                        let seen = start + key >= from && start + key < to;
                        *score = if seen { *score } else { f32::NEG_INFINITY };
                    }
                }
            }
            let before = largest[row];
            let now = larger(before, max(scores.as_flattened()));
            if now == f32::NEG_INFINITY {
                scores.fill([0.0; PANEL]);
                continue;
            }
            for score in scores.iter_mut() {
                for score in score.iter_mut() {
                    *score = exp(*score - now);
                }
            }
            if now > before {
                let shrink = exp(before - now);
                total[row] *= shrink;
                for out in &mut out[row * width..(row + 1) * width] {
                    *out *= shrink;
                }
                largest[row] = now;
            }
            total[row] += sum(scores.as_flattened(), |weight| weight);
        }
    }
}

vectorized! {
    /// `row · factor` into `out`.
    pub(crate) fn scale(row: &[f32], factor: f32, out: &mut [f32]) {
        for (out, &value) in out.iter_mut().zip(row) {
            *out = value * factor;
        }
    }
}

vectorized! {
    /// The index of the largest number, the first of equal ones; `None` if one is not finite or there is none.
    pub(crate) fn argmax(values: &[f32]) -> Option<usize> {
        // The product of 0 with infinity or NaN is NaN.
        let finite = sum(values, |value| value * 0.0) == 0.0;
        let largest = max(values);
        let index = values.iter().position(|&value| value == largest);
        index.filter(|_| finite)
    }
}

vectorized! {
    /// `exp((value - largest) · factor)` of each number into `out`. Returns their sum.
    pub(crate) fn exp_weights(values: &[f32], largest: f32, factor: f32, out: &mut Vec<f32>) -> f64 {
        out.clear();
        out.resize(values.len(), 0.0);
        for (out, &value) in out.iter_mut().zip(values) {
            *out = exp((value - largest) * factor);
        }
        out.chunks(1 << 12).map(|part| f64::from(sum(part, |weight| weight))).sum()
    }
}
