//! Turns in lockstep: where teachers are asked in batches, every open try goes on until it needs a reply;
//! what they need is asked for together, and they go on from there, their cells replayed. No session is
//! held while a batch is out.

use std::collections::HashSet;
use std::sync::Arc;

use futures::future::try_join_all;
use pybench::run::{Executor, RetryFailed, RunContext, RunError, StageSummary, UnitState, Urgency};

use super::{RolloutStage, STAGE};

/// Makes these tries, one wave of batches after another; in one go where no teacher is asked in batches.
///
/// # Errors
/// Those of the executor and of the batches; [`RunError::Interrupted`] on Ctrl-C, also while a batch is out.
pub(super) async fn run(
    context: &RunContext,
    stage: &Arc<RolloutStage>,
    items: &[String],
) -> Result<StageSummary, RunError> {
    let mut context = context.clone();
    loop {
        // First of all what an earlier process sent.
        wait(&context, stage).await?;
        let summary = context.executor().run(stage.clone(), items).await?;
        if stage.batches().next().is_none() || !any_open(&context, items)? {
            return Ok(summary);
        }
        // What failed in this process waits for the next one.
        context.options.retry_failed = RetryFailed::None;
    }
}

/// Sends what was noted and waits for it; the time of that is nobody's.
async fn wait(context: &RunContext, stage: &RolloutStage) -> Result<(), RunError> {
    let all = try_join_all(stage.batches().map(|batches| batches.go()));
    tokio::select! {
        ended = all => ended.map(|_| ()),
        () = context.interrupt.wait(Urgency::Finish) => {
            for batch in context.folder.journal().batches_out()? {
                let id = batch.remote.as_ref().unwrap_or(&batch.name);
                tracing::info!("batch {id} stays where it is; the same command goes on waiting for it");
            }
            Err(RunError::Interrupted)
        }
    }
}

/// Whether some of these tries wait for a reply.
fn any_open(context: &RunContext, items: &[String]) -> Result<bool, RunError> {
    let items: HashSet<_> = items.iter().collect();
    let states = context.folder.journal().states(STAGE)?;
    let open =
        |(item, state): &(String, UnitState)| *state == UnitState::Pending && items.contains(item);
    Ok(states.iter().any(open))
}
