//! A task that is exported holds: the expert was run and passes, and who does nothing fails.

use pybench::grade::Candidate;
use pybench::task::Task;

use crate::library::audit::Bench;
use crate::library::audit::trial::attempt;
use crate::library::audit::{passes, reasons};
use crate::library::{Script, TaskKey};

/// A task with a solution that was seen to pass.
pub(super) struct Proven {
    pub(super) key: TaskKey,
    pub(super) task: Task,
    /// The expert's cells as they were run.
    pub(super) cells: Vec<String>,
    /// What it answered.
    pub(super) answer: String,
}

/// Proves one task, or says why it does not hold.
pub(super) async fn prove(bench: &Bench, key: TaskKey) -> Result<Proven, String> {
    let fixtures = &bench.fixtures;
    let task = key.task(&bench.library, &fixtures.files, &fixtures.store);
    let task = task.map_err(|error| error.to_string())?;
    let script = Script::new(&bench.library, &task).map_err(|error| error.to_string())?;
    let trial = attempt(bench, &task, &script).await;
    let trial = trial.map_err(|error| format!("the expert: {error}"))?;
    let candidates = [trial.candidate, Candidate::default()];
    let found = bench
        .checker
        .check_many(&task, &fixtures.store, &candidates)
        .await;
    match found.map_err(|error| error.to_string())?.as_slice() {
        [expert, _] if !passes(expert) => {
            return Err(format!("the expert fails: {}", reasons(expert)));
        }
        [_, nothing] if passes(nothing) => return Err("who does nothing passes".to_owned()),
        _ => {}
    }
    let (cells, answer) = (trial.cells, trial.answer);
    Ok(Proven {
        key,
        task,
        cells,
        answer,
    })
}
