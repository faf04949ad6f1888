//! The list of runs.

use std::fs::File;
use std::path::Path;

use pybench_run::{Journal, RunError};
use pybench_synthesize::status::{Funnel, funnel};
use schemars::JsonSchema;
use serde::Serialize;

use crate::evaluation;

/// A run or dataset in the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct SourceInfo {
    pub(crate) name: String,
    /// `run`, `evaluation` or `dataset`.
    pub(crate) kind: String,
    /// `running`, `failed` (some units failed), `unfinished`, `finished`; `dataset` for a dataset; `unreadable`.
    pub(crate) state: String,
    pub(crate) files: Option<u64>,
    pub(crate) tasks: Option<u64>,
    pub(crate) trajectories: Option<u64>,
    pub(crate) accepted: Option<u64>,
    /// Rows of the train and the test split together.
    pub(crate) rows: Option<u64>,
    pub(crate) failed: Option<u64>,
    pub(crate) calls: Option<u64>,
    pub(crate) tokens: Option<u64>,
    /// Millionths of a US dollar.
    pub(crate) micro_usd: Option<u64>,
    /// What `pybench status` prints, or why the run cannot be read.
    pub(crate) status: String,
}

/// Describes the run in a folder.
pub(crate) fn describe(name: &str, folder: &Path) -> SourceInfo {
    match of_folder(name, folder) {
        Ok(info) => info,
        Err(error) => SourceInfo {
            name: name.to_owned(),
            kind: "run".to_owned(),
            state: "unreadable".to_owned(),
            status: error.to_string(),
            ..SourceInfo::default()
        },
    }
}

fn of_folder(name: &str, folder: &Path) -> Result<SourceInfo, RunError> {
    let funnel = read(folder)?;
    let info = of_funnel(name, &funnel, is_locked(folder));
    let headline = pybench_eval::status::headline(folder)?;
    let evaluation = evaluation::read(folder)?;
    if headline.is_none() && evaluation.is_none() {
        return Ok(info);
    }
    Ok(SourceInfo {
        kind: "evaluation".to_owned(),
        // Until it is complete, those that the journal has.
        trajectories: evaluation
            .map(|found| found.attempts.len() as u64)
            .or(info.trajectories),
        // Attempts are scored, not accepted.
        accepted: None,
        status: headline.unwrap_or_default() + &funnel.details(),
        ..info
    })
}

fn read(folder: &Path) -> Result<Funnel, RunError> {
    let journal = Journal::of_run(folder)?;
    let missing = || RunError::BadInput(format!("{} has no journal", folder.display()));
    funnel(&journal.ok_or_else(missing)?)
}

fn of_funnel(name: &str, funnel: &Funnel, running: bool) -> SourceInfo {
    let sum = |count: fn(&pybench_synthesize::status::StageStatus) -> u64| {
        funnel.stages.iter().map(count).sum::<u64>()
    };
    let (failed, pending) = (sum(|stage| stage.failed), sum(|stage| stage.pending));
    let state = match (failed, pending) {
        _ if running => "running",
        // What could not be fetched or solved was replaced.
        _ if funnel.rows.is_some() => "finished",
        (1.., _) => "failed",
        (0, 1..) => "unfinished",
        (0, 0) => "finished",
    };
    SourceInfo {
        name: name.to_owned(),
        kind: "run".to_owned(),
        state: state.to_owned(),
        files: funnel.files,
        tasks: funnel.tasks,
        trajectories: Some(funnel.trajectories),
        accepted: Some(funnel.accepted),
        rows: funnel.rows.map(|(train, test)| train + test),
        failed: Some(failed),
        calls: Some(funnel.spent.calls),
        tokens: Some(funnel.spent.tokens),
        micro_usd: Some(funnel.spent.micro_usd),
        status: funnel.to_string(),
    }
}

/// Whether a process works on the run. A process that starts at this moment waits for the lock.
fn is_locked(folder: &Path) -> bool {
    let lock = File::open(folder.join("lock"));
    let free = lock.map(|lock| lock.try_lock_shared());
    matches!(free, Ok(Err(std::fs::TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_evaluation_is_described_by_its_attempts() {
        let folder = tempfile::tempdir().unwrap();
        let attempts = [("a", "1", Some(true)), ("a", "2", None)];
        evaluation::tests::write(folder.path(), &attempts);
        let info = describe("e", folder.path());
        assert_eq!((&*info.kind, &*info.state), ("evaluation", "finished"));
        assert_eq!((info.trajectories, info.accepted), (Some(2), None));
    }
}
