//! Alternates rollout and grading until the goal of the recipe is reached or no attempt is left.
//!
//! The journal holds the outcome of every attempt. [`plan`](pybench_attempts::plan) derives the next round
//! from it, so an interrupted run continues where it stopped.

use pybench_attempts::plan::{plan_run, single_round};
use pybench_run::{RetryFailed, RunContext, RunError};

/// Runs all rounds of rollout and grading.
///
/// # Errors
/// Errors of both stages.
pub(crate) async fn run(context: &RunContext) -> Result<(), RunError> {
    let stage = pybench_rollout::open(context).await?;
    let checker = pybench_grade::checker(context)?;
    let mut context = context.clone();
    loop {
        pybench_rollout::retry(&context)?;
        let plan = plan_run(&context, &stage)?;
        let made_attempts = pybench_rollout::run_round(&context, &stage, &plan).await?;
        pybench_grade::run_with(&context, checker.clone()).await?;
        if !made_attempts || single_round(&context, &stage) {
            return Ok(());
        }
        // Attempts that failed in this process are retried by the next one.
        context.options.retry_failed = RetryFailed::None;
        report(&context)?;
    }
}

fn report(context: &RunContext) -> Result<(), RunError> {
    let accepted = context.folder.journal().metadata("accepted")?;
    let accepted = accepted.and_then(|count| count.as_u64()).unwrap_or(0);
    match context.recipe.goal.accept {
        Some(goal) => tracing::info!("{accepted} of {goal} rows accepted"),
        None => tracing::info!("{accepted} rows accepted so far"),
    }
    Ok(())
}
