//! The test that every exported task must pass: the expert's solution passes and an empty solution fails.

use pybench_checks::{Candidate, CheckError};
use pybench_types::task::Task;

use crate::audit::AuditEnv;
use crate::audit::attempt::attempt;
use crate::audit::{passes, reasons};
use crate::{Script, TaskKey};

/// Maximum number of seeds that are tried for a task.
const MAX_SEEDS: u32 = 4;

/// A task with a solution that passed its checks.
pub(super) struct CheckedTask {
    pub(super) key: TaskKey,
    pub(super) task: Task,
    /// The expert's cells as they were run.
    pub(super) cells: Vec<String>,
    /// The expert's answer.
    pub(super) answer: String,
}

/// Why a task is not exported.
enum Refusal {
    /// Its own reference fails, or says that the files do not suit it.
    WrongTask(String),
    Other(String),
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self::Other(reason)
    }
}

/// Tests the task of a key or, if its reference refuses it, the task whose seed is `step` further, a few times.
///
/// # Errors
/// The reason why the task must not be exported.
pub(super) async fn check_task(
    env: &AuditEnv,
    mut key: TaskKey,
    step: u64,
) -> Result<CheckedTask, String> {
    let mut tried = 1;
    loop {
        let name = key.to_string();
        match check_one(env, key.clone()).await {
            Err(Refusal::WrongTask(why)) if tried < MAX_SEEDS => {
                tracing::info!("{name} is replaced: {why}");
                key.seed = key.seed.wrapping_add(step);
                tried += 1;
            }
            Err(Refusal::WrongTask(why) | Refusal::Other(why)) => return Err(why),
            Ok(checked) => return Ok(checked),
        }
    }
}

async fn check_one(env: &AuditEnv, key: TaskKey) -> Result<CheckedTask, Refusal> {
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
    let found = found.map_err(|error| match error {
        CheckError::Task(_) | CheckError::Unfit(_) => Refusal::WrongTask(error.to_string()),
        _ => Refusal::Other(error.to_string()),
    })?;
    match found.as_slice() {
        [expert, _] if !passes(expert) => {
            return Err(format!("the expert fails: {}", reasons(expert)).into());
        }
        [_, empty] if passes(empty) => {
            return Err("an empty solution passes the checks".to_owned().into());
        }
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
