//! Patience with an endpoint that fails.

use std::time::Duration;

use crate::llm::TeacherError;

/// Between two looks at a batch: at first, and at last.
pub(super) const FIRST_LOOK: Duration = Duration::from_millis(500);
pub(super) const LAST_LOOK: Duration = Duration::from_secs(60);
/// Failures of the endpoint in a row after which this process gives up; the batch stays where it is.
const MOST_FAILURES: u32 = 10;

/// Waits after failures in a row, longer each time.
#[derive(Default)]
pub(super) struct Pace(u32);

impl Pace {
    /// Waits, or gives the failure back: it is one that stays, or one too many.
    pub(super) async fn wait(&mut self, error: TeacherError) -> Result<(), TeacherError> {
        self.0 += 1;
        if !error.retryable() || self.0 >= MOST_FAILURES {
            return Err(error);
        }
        let doubled = FIRST_LOOK.saturating_mul(1 << self.0.min(16));
        let asked = match &error {
            TeacherError::RateLimited { retry_after } => retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        };
        tracing::debug!("{error}; once more in a moment");
        tokio::time::sleep(doubled.max(asked).min(LAST_LOOK)).await;
        Ok(())
    }
}

/// Tries again what does no harm when it is done twice.
pub(super) async fn persist<T>(
    mut attempt: impl AsyncFnMut() -> Result<T, TeacherError>,
) -> Result<T, TeacherError> {
    let mut pace = Pace::default();
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => pace.wait(error).await?,
        }
    }
}
