//! The test that every exported task must pass: the expert's solution passes and an empty solution fails.

use pybench_checks::Candidate;
use pybench_types::task::Task;

use crate::audit::AuditEnv;
use crate::audit::attempt::attempt;
use crate::audit::{passes, reasons};
use crate::{Script, TaskKey};

/// A task with a solution that passed its checks.
pub(super) struct CheckedTask {
    pub(super) key: TaskKey,
    pub(super) task: Task,
    /// The expert's cells as they were run.
    pub(super) cells: Vec<String>,
    /// The expert's answer.
    pub(super) answer: String,
}

/// Tests one task.
///
/// # Errors
/// The reason why the task must not be exported.
pub(super) async fn check_task(env: &AuditEnv, key: TaskKey) -> Result<CheckedTask, String> {
    let fixtures = &env.fixtures;
    let task = key.task(&env.library, &fixtures.files, &fixtures.store);
    let task = task.map_err(|error| error.to_string())?;
    let script = Script::new(&env.library, &task).map_err(|error| error.to_string())?;
    let trial = attempt(env, &task, &script).await;
    let trial = trial.map_err(|error| format!("the expert: {error}"))?;
    let candidates = [trial.candidate, Candidate::default()];
    let found = env
        .checker
        .check_many(&task, &fixtures.store, &candidates)
        .await;
    match found.map_err(|error| error.to_string())?.as_slice() {
        [expert, _] if !passes(expert) => {
            return Err(format!("the expert fails: {}", reasons(expert)));
        }
        [_, empty] if passes(empty) => return Err("an empty solution passes the checks".to_owned()),
        _ => {}
    }
    let (cells, answer) = (trial.cells, trial.answer);
    Ok(CheckedTask {
        key,
        task,
        cells,
        answer,
    })
}
