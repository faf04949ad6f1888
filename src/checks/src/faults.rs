//! Reports how the grader handled planted faults.

use std::collections::HashMap;
use std::fmt;

use pybench_types::id::{CompactDigest, Digest};
use pybench_types::trajectory::Verdict;

use crate::selection::{TrajectoryFeatures, holds};

/// Planted faults compared with verdicts. Trajectories without a verdict do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultReport {
    /// Trajectories with a planted fault.
    pub planted: usize,
    /// Trajectories with a planted fault that were rejected.
    pub caught: usize,
    /// Trajectories without a planted fault.
    pub honest: usize,
    /// Trajectories without a planted fault that were accepted, including ones that did not become rows.
    pub accepted: usize,
    /// Accepted despite a planted fault: trajectory and fault.
    pub missed: Vec<(Digest, String)>,
    /// Rejected without a planted fault: trajectory and first reason.
    pub wronged: Vec<(Digest, String)>,
}

/// Compares planted faults with verdicts. The lists follow the order of the trajectories.
pub fn fault_report(trajectories: &[TrajectoryFeatures], verdicts: &[Verdict]) -> FaultReport {
    let by_id: HashMap<CompactDigest, &Verdict> = verdicts
        .iter()
        .map(|v| ((&v.trajectory).into(), v))
        .collect();
    let mut report = FaultReport::default();
    for trajectory in trajectories {
        if let Some(verdict) = by_id.get(&trajectory.id) {
            report.add(trajectory, verdict);
        }
    }
    report
}

impl FaultReport {
    /// Adds the next trajectory and its verdict.
    pub fn add(&mut self, trajectory: &TrajectoryFeatures, verdict: &Verdict) {
        self.count(trajectory.fault.is_some(), verdict);
        let id = || trajectory.id.into();
        match (&trajectory.fault, solved(verdict)) {
            (Some(fault), true) => self.missed.push((id(), fault.to_string())),
            (None, false) => {
                let reason = crate::first_reason(verdict).unwrap_or_default();
                self.wronged.push((id(), reason));
            }
            _ => {}
        }
    }

    /// Like [`FaultReport::add`], without the lists. `planted`: whether the trajectory has a planted fault.
    pub fn count(&mut self, planted: bool, verdict: &Verdict) {
        match planted {
            true => {
                self.planted += 1;
                self.caught += usize::from(!solved(verdict));
            }
            false => {
                self.honest += 1;
                self.accepted += usize::from(solved(verdict));
            }
        }
    }

    /// Whether exactly the trajectories with planted faults were rejected.
    pub fn exact(&self) -> bool {
        self.missed.is_empty() && self.wronged.is_empty()
    }
}

fn solved(verdict: &Verdict) -> bool {
    verdict.accepted || holds(verdict)
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Planted faults: {} of {} rejected; trajectories without a fault: {} of {} accepted.",
            self.caught, self.planted, self.accepted, self.honest
        )
    }
}
