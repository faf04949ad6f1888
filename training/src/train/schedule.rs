//! Learning rate schedules.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LrScheduler {
    /// Half a cosine down to the minimum.
    #[default]
    Cosine,
    /// Linear decay to the minimum.
    Linear,
    /// Warmup, stable, decay: constant, then linear decay over the last fifth.
    Wsd,
    Constant,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LrSchedule {
    pub scheduler: LrScheduler,
    /// Peak learning rate, after the warmup.
    pub peak: f64,
    pub warmup_steps: u64,
    pub total_steps: u64,
    /// Final learning rate as a fraction of the peak.
    pub min_ratio: f64,
}

impl LrSchedule {
    /// The learning rate of a step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup_steps {
            return self.peak * (step + 1) as f64 / self.warmup_steps as f64;
        }
        let rest = self.total_steps.saturating_sub(self.warmup_steps).max(1) as f64;
        let done = ((step - self.warmup_steps) as f64 / rest).min(1.0);
        let decay = match self.scheduler {
            LrScheduler::Constant => 1.0,
            LrScheduler::Linear => 1.0 - done,
            LrScheduler::Cosine => (1.0 + (std::f64::consts::PI * done).cos()) / 2.0,
            LrScheduler::Wsd => ((1.0 - done) / 0.2).min(1.0),
        };
        self.peak * (self.min_ratio + (1.0 - self.min_ratio) * decay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(kind: LrScheduler) -> LrSchedule {
        LrSchedule {
            scheduler: kind,
            peak: 2.0,
            warmup_steps: 4,
            total_steps: 104,
            min_ratio: 0.1,
        }
    }

    #[test]
    fn schedules_have_the_documented_shapes() {
        use LrScheduler::*;
        for kind in [Cosine, Linear, Wsd, Constant] {
            assert_eq!(schedule(kind).at(0), 0.5);
            assert_eq!(schedule(kind).at(4), 2.0);
        }
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
        near(schedule(Cosine).at(54), 2.0 * 0.55);
        near(schedule(Linear).at(29), 2.0 * (0.1 + 0.9 * 0.75));
        near(schedule(Wsd).at(83), 2.0);
        near(schedule(Wsd).at(94), 2.0 * 0.55);
        near(schedule(Linear).at(104), 0.2);
        near(schedule(Constant).at(103), 2.0);
    }
}
