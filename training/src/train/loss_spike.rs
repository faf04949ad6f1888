//! Detection of loss spikes.

use std::collections::VecDeque;

/// Number of past losses that are compared.
const WINDOW: usize = 64;
/// Number of past losses that are needed to detect a spike.
const MIN_HISTORY: usize = 16;

/// Compares each loss with the last ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LossSpikeDetector {
    losses: VecDeque<f64>,
}

impl LossSpikeDetector {
    /// The last losses as bits, for a checkpoint.
    pub fn to_bits(&self) -> Vec<u64> {
        self.losses.iter().map(|loss| loss.to_bits()).collect()
    }

    pub fn from_bits(bits: &[u64]) -> Self {
        let last = &bits[bits.len().saturating_sub(WINDOW)..];
        Self {
            losses: last.iter().map(|&loss| f64::from_bits(loss)).collect(),
        }
    }

    /// Records a loss. If it exceeds the median of the last ones by more than `threshold` standard deviations, it
    /// is not recorded and the median is returned. The standard deviation is estimated from the median
    /// absolute deviation, and is at least 2 % of the median. 0 disables the check.
    pub fn observe(&mut self, loss: f64, threshold: f64) -> Option<f64> {
        if threshold > 0.0 && self.losses.len() >= MIN_HISTORY {
            let median_loss = median(self.losses.iter().copied());
            let distance = median(self.losses.iter().map(|loss| (loss - median_loss).abs()));
            let spread = (1.4826 * distance).max(0.02 * median_loss.abs());
            if loss > median_loss + threshold * spread {
                return Some(median_loss);
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
    fn spikes_are_told_from_noise_and_from_a_falling_loss() {
        let mut detector = LossSpikeDetector::default();
        for step in 0..200 {
            let noise = f64::from(step * 7919 % 13) / 13.0 - 0.5;
            let loss = 1.0 + 4.0 * (-f64::from(step) / 20.0).exp() + 0.4 * noise;
            assert_eq!(detector.observe(loss, 10.0), None, "step {step}");
        }
        let before = detector.clone();
        assert!(
            detector
                .observe(5.0, 10.0)
                .is_some_and(|median_loss| median_loss < 1.3)
        );
        assert_eq!(detector, before, "a spike is not recorded");
        assert_eq!(detector.observe(5.0, 0.0), None);
    }

    #[test]
    fn early_steps_are_not_checked() {
        let mut detector = LossSpikeDetector::default();
        (0..MIN_HISTORY)
            .for_each(|step| assert_eq!(detector.observe(10f64.powi(step as i32), 1.0), None));
    }

    #[test]
    fn bits_restore_the_detector() {
        let mut detector = LossSpikeDetector::default();
        for n in 0..100 {
            detector.observe(1.0 / f64::from(n + 3), 0.0);
        }
        assert_eq!(LossSpikeDetector::from_bits(&detector.to_bits()), detector);
    }
}
