//! The course of the learning rate.

use serde::{Deserialize, Serialize};

/// Known courses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleKind {
    /// Half a cosine down to the floor.
    #[default]
    Cosine,
    /// A straight line down to the floor.
    Linear,
    /// Constant, then a straight line over the last fifth (warm-up, stable, decay).
    Wsd,
    /// Constant.
    Constant,
}

/// Rates for every step.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)]
pub struct Schedule {
    pub kind: ScheduleKind,
    /// Highest rate.
    pub rate: f64,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// Steps in all.
    pub steps: u64,
    /// Share of the highest rate at the end.
    pub floor: f64,
}

impl Schedule {
    /// The rate of a step, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.rate * (step + 1) as f64 / self.warmup as f64;
        }
        let rest = self.steps.saturating_sub(self.warmup).max(1) as f64;
        let done = ((step - self.warmup) as f64 / rest).min(1.0);
        let share = match self.kind {
            ScheduleKind::Constant => 1.0,
            ScheduleKind::Linear => 1.0 - done,
            ScheduleKind::Cosine => (1.0 + (std::f64::consts::PI * done).cos()) / 2.0,
            ScheduleKind::Wsd => ((1.0 - done) / 0.2).min(1.0),
        };
        self.rate * (self.floor + (1.0 - self.floor) * share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(kind: ScheduleKind) -> Schedule {
        Schedule {
            kind,
            rate: 2.0,
            warmup: 4,
            steps: 104,
            floor: 0.1,
        }
    }

    #[test]
    fn courses_have_the_shapes_they_are_named_after() {
        use ScheduleKind::*;
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
