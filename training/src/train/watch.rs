//! Losses that jump.

use std::collections::VecDeque;

/// Losses remembered.
const WINDOW: usize = 64;
/// Losses needed before one can be called a jump.
const FEWEST: usize = 16;

/// The last losses of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watch {
    losses: VecDeque<f64>,
}

impl Watch {
    /// What was remembered, as bits, for a checkpoint.
    pub fn bits(&self) -> Vec<u64> {
        self.losses.iter().map(|loss| loss.to_bits()).collect()
    }

    /// The same again.
    pub fn from_bits(bits: &[u64]) -> Self {
        let last = &bits[bits.len().saturating_sub(WINDOW)..];
        Self {
            losses: last.iter().map(|&loss| f64::from_bits(loss)).collect(),
        }
    }

    /// Remembers a loss, unless it lies more than `most` spreads above the median of the last ones:
    /// then the median is returned. A spread is the standard deviation that fits the median
    /// distance from the median, and at least 2 % of it. 0 calls nothing a jump.
    pub fn see(&mut self, loss: f64, most: f64) -> Option<f64> {
        if most > 0.0 && self.losses.len() >= FEWEST {
            let usual = median(self.losses.iter().copied());
            let distance = median(self.losses.iter().map(|loss| (loss - usual).abs()));
            let spread = (1.4826 * distance).max(0.02 * usual.abs());
            if loss > usual + most * spread {
                return Some(usual);
            }
        }
        self.losses.push_back(loss);
        if self.losses.len() > WINDOW {
            self.losses.pop_front();
        }
        None
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_told_from_noise_and_from_a_falling_loss() {
        let mut watch = Watch::default();
        for step in 0..200 {
            let noise = f64::from(step * 7919 % 13) / 13.0 - 0.5;
            let loss = 1.0 + 4.0 * (-f64::from(step) / 20.0).exp() + 0.4 * noise;
            assert_eq!(watch.see(loss, 10.0), None, "step {step}");
        }
        let before = watch.clone();
        assert!(watch.see(5.0, 10.0).is_some_and(|usual| usual < 1.3));
        assert_eq!(watch, before, "a jump is not remembered as usual");
        assert_eq!(watch.see(5.0, 0.0), None);
    }

    #[test]
    fn early_steps_are_not_judged() {
        let mut watch = Watch::default();
        (0..FEWEST).for_each(|step| assert_eq!(watch.see(10f64.powi(step as i32), 1.0), None));
    }

    #[test]
    fn bits_bring_it_back() {
        let mut watch = Watch::default();
        for n in 0..100 {
            watch.see(1.0 / f64::from(n + 3), 0.0);
        }
        assert_eq!(Watch::from_bits(&watch.bits()), watch);
    }
}
