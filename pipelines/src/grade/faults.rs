//! How the grader did on faults that were put in on purpose.

use std::collections::HashMap;
use std::fmt;

use pybench::id::Digest;
use pybench::trajectory::{Trajectory, Verdict};

use crate::goal::holds;

/// Planted faults against verdicts. Trajectories without a verdict (failures of ours) do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultReport {
    /// Trajectories with a planted fault.
    pub planted: usize,
    /// Of these, rejected.
    pub caught: usize,
    /// Trajectories without one.
    pub honest: usize,
    /// Of these, accepted, whether they were needed or not.
    pub accepted: usize,
    /// Planted but accepted: trajectory and fault.
    pub missed: Vec<(Digest, String)>,
    /// Honest but rejected: trajectory and the first reason.
    pub wronged: Vec<(Digest, String)>,
}

/// Compares planted faults with verdicts, in the order of the trajectories.
pub fn fault_report(trajectories: &[Trajectory], verdicts: &[Verdict]) -> FaultReport {
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
    fn add(&mut self, trajectory: &Trajectory, verdict: &Verdict) {
        match (&trajectory.fault, verdict.accepted || holds(verdict)) {
            (Some(_), false) => self.caught += 1,
            (Some(fault), true) => self.missed.push((trajectory.id.clone(), fault.clone())),
            (None, true) => self.accepted += 1,
            (None, false) => {
                let reason = super::first_reason(verdict).unwrap_or_default();
                self.wronged.push((trajectory.id.clone(), reason));
            }
        }
        match trajectory.fault {
            Some(_) => self.planted += 1,
            None => self.honest += 1,
        }
    }

    /// Whether exactly the planted faults were rejected.
    pub fn exact(&self) -> bool {
        self.missed.is_empty() && self.wronged.is_empty()
    }
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Faults put in on purpose: {} of {} rejected; without one: {} of {} accepted.",
            self.caught, self.planted, self.accepted, self.honest
        )
    }
}
