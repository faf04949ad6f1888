//! The list of runs.

use std::fs::File;
use std::path::Path;

use pybench_attempts::outcomes::is_wrong_task;
use pybench_run::artifacts::stage::{GRADE, ROLLOUT};
use pybench_run::{Journal, RunError};
use pybench_synthesize::status::{Funnel, StageStatus, funnel};
use schemars::JsonSchema;
use serde::Serialize;

use crate::evaluation;

/// A run or dataset in the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct SourceInfo {
    pub(crate) name: String,
    /// `run`, `evaluation`, `dataset` or `log`.
    pub(crate) kind: String,
    /// `running`, `unfinished`, `failed` (some units failed, and the dataset is not written), `incomplete` (it is written, and
    /// lacks rows since units failed), `finished`; the kind for a dataset or log; `unreadable`.
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

impl SourceInfo {
    /// A dataset or log, of which only the kind is known before it is indexed.
    pub(crate) fn of_files(name: &str, kind: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            state: kind.to_owned(),
            ..Self::default()
        }
    }
}

/// Describes the run in a folder.
pub(crate) fn describe(name: &str, folder: &Path) -> SourceInfo {
    match read(name, folder) {
        Ok((info, _)) => info,
        Err(error) => unreadable(name, &error),
    }
}

/// A run that cannot be read.
pub(crate) fn unreadable(name: &str, error: &RunError) -> SourceInfo {
    SourceInfo {
        name: name.to_owned(),
        kind: "run".to_owned(),
        state: "unreadable".to_owned(),
        status: error.to_string(),
        ..SourceInfo::default()
    }
}

/// The run in a folder, and its progress.
///
/// # Errors
/// The journal or the records of an evaluation cannot be read.
pub(crate) fn read(name: &str, folder: &Path) -> Result<(SourceInfo, Funnel), RunError> {
    let journal = Journal::of_run(folder)?;
    let missing = || RunError::BadInput(format!("{} has no journal", folder.display()));
    let journal = journal.ok_or_else(missing)?;
    let funnel = funnel(&journal)?;
    let lost = lost_units(&journal, &funnel)?;
    let info = of_funnel(name, &funnel, lost, is_in_work(folder, &funnel));
    let headline = pybench_eval::status::headline(folder)?;
    let evaluation = evaluation::read(folder)?;
    if headline.is_none() && evaluation.is_none() {
        return Ok((info, funnel));
    }
    let info = SourceInfo {
        kind: "evaluation".to_owned(),
        // Until it is complete, those that the journal has.
        trajectories: evaluation
            .map(|found| found.attempts.len() as u64)
            .or(info.trajectories),
        // Attempts are scored, not accepted.
        accepted: None,
        status: headline.unwrap_or_default() + &funnel.details(),
        ..info
    };
    Ok((info, funnel))
}

/// Number of failed units that cost rows, as `pybench synthesize` counts them for its exit code: neither files that could
/// not be read nor tasks whose reference failed, since others took their place.
fn lost_units(journal: &Journal, funnel: &Funnel) -> Result<u64, RunError> {
    let costs_rows = |stage: &&StageStatus| [ROLLOUT, GRADE].contains(&stage.stage.as_str());
    let stages = funnel.stages.iter().filter(costs_rows);
    let failed: u64 = stages.map(|stage| stage.failed).sum();
    if failed == 0 {
        return Ok(0);
    }
    let failures = journal.failures()?;
    let replaced = failures.iter().filter(|unit| is_wrong_task(unit)).count();
    Ok(failed.saturating_sub(replaced as u64))
}

fn of_funnel(name: &str, funnel: &Funnel, lost: u64, running: bool) -> SourceInfo {
    let sum = |count: fn(&StageStatus) -> u64| funnel.stages.iter().map(count).sum::<u64>();
    let (failed, pending) = (sum(|stage| stage.failed), sum(|stage| stage.pending));
    let state = match (failed, pending) {
        _ if running => "running",
        _ if funnel.rows.is_some() && lost > 0 => "incomplete",
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

/// Whether a process works on the run, for a journal on a server also one of another machine.
fn is_in_work(folder: &Path, funnel: &Funnel) -> bool {
    let has_units = funnel.stages.iter().any(|stage| stage.in_work > 0);
    is_locked(folder) || (has_units && folder.join("journal.toml").is_file())
}

/// Whether a process of this machine works on the run. A process that starts at this moment waits for the lock.
pub(crate) fn is_locked(folder: &Path) -> bool {
    let lock = File::open(folder.join("lock"));
    let free = lock.map(|lock| lock.try_lock_shared());
    matches!(free, Ok(Err(std::fs::TryLockError::WouldBlock)))
}

#[cfg(test)]
mod tests {
    use pybench_run::{Failure, FailureKind};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dataset_that_lacks_rows_of_failed_units_is_incomplete() {
        for (stage, kind, expected) in [
            ("crawl", FailureKind::Item, "finished"),
            (GRADE, FailureKind::Item, "finished"),
            (GRADE, FailureKind::Interpreter, "incomplete"),
            (ROLLOUT, FailureKind::Endpoint, "incomplete"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let journal = Journal::open(&folder.path().join("journal.sqlite")).unwrap();
            journal.enqueue(stage, ["a"]).unwrap();
            let failure = Failure::new(kind, "broken");
            journal.fail(stage, "a", &failure, true).unwrap();
            assert_eq!(describe("r", folder.path()).state, "failed");
            for rows in ["train_rows", "test_rows"] {
                journal.set_metadata(rows, &json!(1)).unwrap();
            }
            let info = describe("r", folder.path());
            assert_eq!(info.state, expected, "{stage} {kind:?}");
            assert_eq!(info.failed, Some(1));
        }
    }

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
