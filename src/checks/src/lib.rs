//! Grading: the checker, which evaluates checks in a fresh sandbox, the LLM judge, and the selection of
//! trajectories that become rows.

pub mod agreement;
mod checker;
pub mod faults;
pub mod interval;
pub mod judge;
pub mod selection;
mod sources;
mod untrusted;

use std::collections::{BTreeMap, HashSet};

use pybench_run::{Failure, FailureKind, interpreter_failure};
use pybench_types::trajectory::{Outcome, Verdict};

pub use checker::{Candidate, CheckError, Checker, Claim, checker_sources, checker_task};

/// Converts a checker error to the failure of a unit. It is a fault of the task, the sandbox or the disk,
/// never of the model.
pub fn check_failure(error: CheckError) -> Failure {
    let text = error.to_string();
    match error {
        CheckError::Interpreter(error) => interpreter_failure(error),
        CheckError::Unfit(_) => Failure::new(FailureKind::Item, text),
        // A wrong task stays wrong, so a retry would not help.
        CheckError::Task(_) => Failure::new(FailureKind::Item, text),
        CheckError::Checker(_) | CheckError::Io { .. } => {
            Failure::new(FailureKind::Internal, text).retryable()
        }
        CheckError::File(error) => error.into(),
    }
}

/// Number of trajectories that each filter rejected, by filter name. A trajectory that several filters
/// rejected counts for each of them.
pub fn rejections<'v>(verdicts: impl IntoIterator<Item = &'v Verdict>) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for verdict in verdicts {
        count_rejection(&mut counts, verdict);
    }
    counts
}

/// Adds a verdict to the counts of [`rejections`].
pub fn count_rejection(counts: &mut BTreeMap<String, u64>, verdict: &Verdict) {
    let failed = verdict
        .findings
        .iter()
        .filter(|f| f.outcome != Outcome::Pass);
    let filters: HashSet<&str> = failed.map(|f| f.filter.as_str()).collect();
    for filter in filters {
        *counts.entry(filter.to_owned()).or_default() += 1;
    }
}

/// The first reason why a trajectory was rejected, such as `check table output/a.csv: …`.
pub fn first_reason(verdict: &Verdict) -> Option<String> {
    let failed = verdict
        .findings
        .iter()
        .find(|f| f.outcome != Outcome::Pass)?;
    let (filter, subject, detail) = (&failed.filter, &failed.subject, &failed.detail);
    Some(format!("{filter} {subject}: {detail}"))
}
