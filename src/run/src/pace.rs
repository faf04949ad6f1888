//! How fast the units of a stage end, when the last will have ended and what it will have cost, for `pybench status`.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::{Journal, RunError};

/// Metadata key in the journal.
const KEY: &str = "pace";

/// Time over which the pace is measured.
const WINDOW: Duration = Duration::from_secs(300);

/// A running process writes the pace more often than this; an older one is of a process that has ended.
const MAX_AGE_MILLIS: i64 = 10_000;

/// The pace of a stage, over all processes that work on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    pub stage: String,
    /// Units that end in an hour, as in the last minutes.
    pub per_hour: f64,
    /// Units of the present round that have not ended.
    pub left: u64,
    /// What those will cost if they cost as much as the others of the round, in millionths of a dollar.
    pub micro_usd_left: u64,
}

#[derive(Serialize, Deserialize)]
struct Recorded {
    #[serde(flatten)]
    pace: Pace,
    /// Unix time in milliseconds, by the clock of the journal.
    at: i64,
}

impl Pace {
    /// Expected seconds until the last unit of the round has ended.
    pub fn seconds_left(&self) -> f64 {
        self.left as f64 / self.per_hour * 3600.0
    }

    /// The pace of the process that works on the run; `None` if none does, if no unit has ended yet, or if all have.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn of(journal: &Journal) -> Result<Option<Self>, RunError> {
        let recorded = journal.metadata(KEY)?;
        let recorded = recorded.and_then(|value| serde_json::from_value::<Recorded>(value).ok());
        let Some(Recorded { pace, at }) = recorded else {
            return Ok(None);
        };
        let age = journal.now_millis()?.saturating_sub(at);
        Ok((age <= MAX_AGE_MILLIS && pace.left > 0).then_some(pace))
    }
}

/// Measures the pace of a round.
#[derive(Debug)]
pub(crate) struct PaceMeter {
    stage: &'static str,
    /// Units of the round.
    units: u64,
    /// What the run had spent when the round began.
    spent_before: u64,
    ended: u64,
    /// How many units had ended at earlier moments, the oldest first.
    moments: VecDeque<(Instant, u64)>,
}

impl PaceMeter {
    /// `micro_usd` is what the run has spent.
    pub(crate) fn new(stage: &'static str, units: usize, micro_usd: u64) -> Self {
        Self {
            stage,
            units: units as u64,
            spent_before: micro_usd,
            ended: 0,
            moments: VecDeque::from([(Instant::now(), 0)]),
        }
    }

    /// Counts units that are done or have failed.
    pub(crate) fn add(&mut self, ended: u64) {
        self.ended += ended;
    }

    /// Records the pace in the journal; `micro_usd` is what the run has spent.
    pub(crate) fn record(&mut self, journal: &Journal, micro_usd: u64) -> Result<(), RunError> {
        let Some(pace) = self.pace(Instant::now(), micro_usd) else {
            return Ok(());
        };
        let at = journal.now_millis()?;
        let recorded = serde_json::to_value(Recorded { pace, at })?;
        journal.set_metadata(KEY, &recorded)
    }

    fn pace(&mut self, now: Instant, micro_usd: u64) -> Option<Pace> {
        self.moments.push_back((now, self.ended));
        while self.moments.len() > 2
            && let Some((second, _)) = self.moments.get(1)
            && now.duration_since(*second) >= WINDOW
        {
            self.moments.pop_front();
        }
        let (since, before) = *self.moments.front()?;
        let (ended, seconds) = (self.ended - before, now.duration_since(since).as_secs_f64());
        if ended == 0 || seconds <= 0.0 {
            return None;
        }
        let left = self.units.saturating_sub(self.ended);
        let spent = micro_usd.saturating_sub(self.spent_before);
        Some(Pace {
            stage: self.stage.to_owned(),
            per_hour: ended as f64 / seconds * 3600.0,
            left,
            // The cast saturates.
            micro_usd_left: (spent as f64 / self.ended as f64 * left as f64) as u64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pace_is_that_of_the_last_minutes() {
        let mut meter = PaceMeter::new("rollout", 1_000, 500);
        let begun = meter.moments[0].0;
        let after = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(meter.pace(after(10), 500), None);
        meter.add(10);
        let pace = meter.pace(after(100), 1_500).unwrap();
        assert_eq!((pace.per_hour.round(), pace.left), (360.0, 990));
        // A unit has cost 100.
        assert_eq!(pace.micro_usd_left, 99_000);
        assert_eq!(pace.seconds_left().round(), 9_900.0);
        // Ten times as fast: what is older than five minutes counts no longer.
        for step in 1..=60 {
            meter.add(10);
            meter.pace(after(100 + 10 * step), 1_500);
        }
        let pace = meter.pace(after(700), 1_500).unwrap();
        assert_eq!((pace.per_hour.round(), pace.left), (3_600.0, 390));
        assert!(meter.moments.len() < 35, "{}", meter.moments.len());
    }

    #[test]
    fn only_the_pace_of_a_running_process_is_shown() {
        let root = tempfile::tempdir().unwrap();
        let journal = Journal::open(&root.path().join("journal.sqlite")).unwrap();
        assert_eq!(Pace::of(&journal).unwrap(), None);
        let mut meter = PaceMeter::new("rollout", 10, 0);
        meter.add(5);
        std::thread::sleep(Duration::from_millis(2));
        meter.record(&journal, 50).unwrap();
        let pace = Pace::of(&journal).unwrap().unwrap();
        assert_eq!((pace.left, pace.micro_usd_left), (5, 50));
        meter.add(5);
        meter.record(&journal, 50).unwrap();
        assert_eq!(Pace::of(&journal).unwrap(), None);
        let old = serde_json::to_value(Recorded { pace, at: 1 }).unwrap();
        journal.set_metadata(KEY, &old).unwrap();
        assert_eq!(Pace::of(&journal).unwrap(), None);
    }
}
