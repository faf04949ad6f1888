//! Retries and poll intervals for batches.

use std::time::Duration;

use crate::ChatError;

/// Initial and maximum interval between status requests of a batch.
pub(super) const MIN_POLL_INTERVAL: Duration = Duration::from_millis(500);
pub(super) const MAX_POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Consecutive failures of the endpoint after which this process gives up; the batch itself continues.
const MAX_FAILURES: u32 = 10;

/// Exponential backoff after consecutive failures.
#[derive(Default)]
pub(super) struct Backoff(u32);

impl Backoff {
    /// Waits, or returns the error if it is permanent or there were too many failures.
    pub(super) async fn wait(&mut self, error: ChatError) -> Result<(), ChatError> {
        self.0 += 1;
        if !error.retryable() || self.0 >= MAX_FAILURES {
            return Err(error);
        }
        let doubled = MIN_POLL_INTERVAL.saturating_mul(1 << self.0.min(16));
        let asked = match &error {
            ChatError::RateLimited { retry_after } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        tracing::debug!("{error}; retrying");
        tokio::time::sleep(doubled.max(asked).min(MAX_POLL_INTERVAL)).await;
        Ok(())
    }
}

/// Retries an idempotent operation.
pub(super) async fn retry<T>(
    mut attempt: impl AsyncFnMut() -> Result<T, ChatError>,
) -> Result<T, ChatError> {
    let mut backoff = Backoff::default();
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => backoff.wait(error).await?,
        }
    }
}
