//! Runs `pybench-train` until it ends, the run is interrupted, or its time is over.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use pybench_attempts::{dependent_process, model_server};
use pybench_run::{ExitCode, RunContext, RunError, SAVE_EVERY, StageClock, Urgency, time_spent};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;

use crate::budget::SharedBudget;

/// Lets the trainer check the recipe `own`, which was made of the one at `path`.
///
/// # Errors
/// The error that the exit code of the trainer stands for.
pub(crate) async fn check(path: &Path, own: &Path) -> Result<(), RunError> {
    let program = model_server::required_program()?;
    let mut command = dependent_process::command(&program);
    command.arg("check").arg(own).stdout(Stdio::null());
    let status = command.status().await;
    let status = status.map_err(RunError::io(program.display().to_string()))?;
    outcome(status, || {
        format!(
            "loop.train: the trainer cannot use {} in a round ({status}); the output above says why, and {} is what it read",
            path.display(),
            own.display()
        )
    })
}

/// Trains with a recipe in the folder `out`. A trainer that has to stop completes its step and writes a checkpoint, from
/// which the next call goes on; its time counts toward `budget.minutes`.
///
/// # Errors
/// The error that the exit code of the trainer stands for; [`RunError::Budget`] if the time is over.
pub(crate) async fn run(
    context: &RunContext,
    recipe: &Path,
    out: &Path,
    number: u32,
) -> Result<(), RunError> {
    let budget = SharedBudget::of(context, context.folder.root())?;
    let own = time_spent(context.folder.journal())?;
    let left = budget.time_left().map(|left| left.saturating_sub(own));
    if left == Some(Duration::ZERO) {
        return Err(budget.out_of_time());
    }
    let clock = StageClock::start(context.folder.clone(), &format!("train-{number}"))?;
    let program = model_server::required_program()?;
    let mut command = dependent_process::command(&program);
    command.arg("run").arg(recipe).arg("--out").arg(out);
    // Standard output belongs to this program.
    command.stdout(Stdio::null());
    let started = command.spawn();
    let mut child = started.map_err(RunError::io(program.display().to_string()))?;
    let ended = RunError::io(program.display().to_string());
    let reason = tokio::select! {
        status = child.wait() => return trained(status.map_err(ended)?, number),
        () = context.interrupt.wait(Urgency::Finish) => RunError::Interrupted,
        () = until(left) => budget.out_of_time(),
        error = save_time(&clock) => error,
    };
    tell_to_stop(&child);
    tokio::select! {
        // It may have been complete when the signal came.
        Ok(status) = child.wait() => match status.success() {
            true => Ok(()),
            false => Err(reason),
        },
        () = context.interrupt.wait(Urgency::Now) => Err(RunError::Interrupted),
    }
}

/// Saves the time so far until that fails.
async fn save_time(clock: &StageClock) -> RunError {
    let mut due = tokio::time::interval(SAVE_EVERY);
    loop {
        due.tick().await;
        if let Err(error) = clock.save() {
            return error;
        }
    }
}

async fn until(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}

fn tell_to_stop(child: &Child) {
    let process = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    if let Some(process) = process {
        // It fails for a process that has ended.
        let _ = kill_process(process, Signal::TERM);
    }
}

/// How the training of a round ended.
fn trained(status: ExitStatus, number: u32) -> Result<(), RunError> {
    outcome(status, || {
        format!(
            "training of round {number} ended with {status}; the output above says why, and the same command goes on with it"
        )
    })
}

/// What the trainer's exit code stands for, with this text for a failure.
fn outcome(status: ExitStatus, text: impl FnOnce() -> String) -> Result<(), RunError> {
    let text = match status.success() {
        true => return Ok(()),
        false => text(),
    };
    Err(match status.code().and_then(ExitCode::from_number) {
        Some(ExitCode::BadInput | ExitCode::Usage) => RunError::BadInput(text),
        Some(ExitCode::Environment) => RunError::Environment(text),
        Some(ExitCode::Conflict) => RunError::Conflict(text),
        Some(ExitCode::Interrupted) => RunError::Interrupted,
        _ => RunError::Incomplete(text),
    })
}
