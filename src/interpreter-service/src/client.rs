//! Who asks, and what counts against their limits.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;

/// The client of a request, as [`authenticate`] identified it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client(pub(super) Arc<str>);

/// Counts an interpreter against the limits until it is dropped.
pub(super) struct Permits {
    pub(super) _client: OwnedSemaphorePermit,
    pub(super) _all: OwnedSemaphorePermit,
}
