//! The list of runs.

use std::fs::File;
use std::path::Path;

use pybench_run::{Journal, RunError};
use pybench_synthesize::status::{Funnel, funnel};
use schemars::JsonSchema;
use serde::Serialize;

/// A run or dataset in the list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct SourceInfo {
    pub(crate) name: String,
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
    match read(folder) {
        Ok(funnel) => of_funnel(name, &funnel, is_locked(folder)),
        Err(error) => SourceInfo {
            name: name.to_owned(),
            state: "unreadable".to_owned(),
            status: error.to_string(),
            ..SourceInfo::default()
        },
    }
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
