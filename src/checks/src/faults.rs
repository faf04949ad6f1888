//! Reports how the grader handled planted faults.

use std::collections::HashMap;
use std::fmt;

use pybench_types::id::Digest;
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
    let by_id: HashMap<&Digest, &Verdict> = verdicts.iter().map(|v| (&v.trajectory, v)).collect();
    let mut report = FaultReport::default();
    for trajectory in trajectories {
        let Some(verdict) = by_id.get(&trajectory.id) else {
            continue;
        };
        report.add(trajectory, verdict);
    }
    report
}

impl FaultReport {
    fn add(&mut self, trajectory: &TrajectoryFeatures, verdict: &Verdict) {
        match (&trajectory.fault, verdict.accepted || holds(verdict)) {
            (Some(_), false) => self.caught += 1,
            (Some(fault), true) => self.missed.push((trajectory.id.clone(), fault.clone())),
            (None, true) => self.accepted += 1,
            (None, false) => {
                let reason = crate::first_reason(verdict).unwrap_or_default();
                self.wronged.push((trajectory.id.clone(), reason));
            }
        }
        match trajectory.fault {
            Some(_) => self.planted += 1,
            None => self.honest += 1,
        }
    }

    /// Whether exactly the trajectories with planted faults were rejected.
    pub fn exact(&self) -> bool {
        self.missed.is_empty() && self.wronged.is_empty()
    }
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
