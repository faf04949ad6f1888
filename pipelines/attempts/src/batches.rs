//! Attempts in batch rounds. With a teacher behind a batch API, every open attempt runs until it needs a
//! reply. All pending requests are sent as one batch; when the replies arrive, each attempt replays its
//! cells and continues. No session stays open while a batch is pending.

use std::sync::Arc;

use futures::future::try_join_all;
use pybench_run::{RetryFailed, RunContext, RunError, StageSummary, Urgency};

use pybench_run::artifacts::stage;

use crate::{AttemptItems, AttemptStage};

/// Runs these attempts, one batch round after another; in a single pass if no teacher uses batches.
///
/// # Errors
/// Errors of the executor and of the batches; [`RunError::Interrupted`] on Ctrl-C, also while a batch is
/// pending.
pub async fn run(
    context: &RunContext,
    attempts: &Arc<AttemptStage>,
    items: AttemptItems<'_>,
) -> Result<StageSummary, RunError> {
    let mut context = context.clone();
    loop {
        // An earlier process may have sent a batch that is still pending.
        send_and_wait(&context, attempts).await?;
        let models = context.recipe.teachers().into_iter();
        let executor = context.shared_executor(models.map(|(_, choice)| choice));
        let summary = executor.run(attempts.clone(), &items).await?;
        if attempts.batches().next().is_none() || !any_pending(&context, items)? {
            return Ok(summary);
        }
        // Attempts that failed in this process are retried by the next one.
        context.options.retry_failed = RetryFailed::None;
    }
}

/// Sends the queued requests and waits for their replies. Waiting does not count toward any stage's time.
async fn send_and_wait(context: &RunContext, attempts: &AttemptStage) -> Result<(), RunError> {
    let all = try_join_all(attempts.batches().map(|batches| batches.run()));
    tokio::select! {
        ended = all => ended.map(|_| ()),
        () = context.interrupt.wait(Urgency::Finish) => {
            for batch in context.folder.journal().all_open_batches()? {
                let id = batch.remote.as_ref().unwrap_or(&batch.name);
                tracing::info!("batch {id} is still pending; run the same command again to continue waiting for it");
            }
            Err(RunError::Interrupted)
        }
    }
}

/// Whether any of these attempts waits for a reply.
fn any_pending(context: &RunContext, items: AttemptItems<'_>) -> Result<bool, RunError> {
    let journal = context.folder.journal();
    let (pending, _) = journal.pending(stage::ROLLOUT, items.iter())?;
    Ok(!pending.is_empty())
}
