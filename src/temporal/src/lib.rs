//! Distributes the units of a run by a Temporal server: one unit is one standalone activity.
//!
//! The journal decides which units are offered, who has leased one, and how it ended; Temporal decides where and when
//! the next attempt is made (docs/temporal.md). The feature `sdk` brings the client of Temporal's Rust SDK; without it,
//! a profile that names a Temporal server is refused.

#[cfg(feature = "sdk")]
mod activity;
#[cfg(feature = "sdk")]
mod queue;

use std::sync::Arc;

use pybench_run::shared::UnitQueue;
use pybench_run::{RunError, RunQueue};

#[cfg(feature = "sdk")]
pub use self::queue::TemporalQueue;

/// The queue that the profile of a run names.
///
/// # Errors
/// [`RunError::Environment`] if the server does not answer or cannot run standalone activities, or if this program is
/// built without Temporal.
pub async fn connect(queue: Option<&RunQueue>) -> Result<Option<Arc<dyn UnitQueue>>, RunError> {
    match queue {
        Some(queue) => Ok(Some(open(queue).await?)),
        None => Ok(None),
    }
}

/// Removes what a run has left in its queue, after it was moved or has started over.
///
/// # Errors
/// As [`connect`].
pub async fn clear(queue: &RunQueue) -> Result<(), RunError> {
    open(queue).await?.clear().await
}

#[cfg(feature = "sdk")]
async fn open(queue: &RunQueue) -> Result<Arc<dyn UnitQueue>, RunError> {
    Ok(Arc::new(TemporalQueue::connect(queue).await?))
}

#[cfg(not(feature = "sdk"))]
async fn open(queue: &RunQueue) -> Result<Arc<dyn UnitQueue>, RunError> {
    Err(RunError::Environment(format!(
        "the profile distributes units by the Temporal server on {}, and this program is built without Temporal: in a \
         checkout, run `cargo run -p pybench --features temporal -- ` and the same arguments; a wheel has Temporal. Or remove \
         the section [temporal] from the profile",
        queue.server.address
    )))
}
