//! How fast a service may be asked.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// At most so many requests at a time, which begin at least so far apart.
pub(crate) struct Pace {
    interval: Duration,
    connections: Arc<Semaphore>,
    next: Mutex<Instant>,
}

/// Leave to ask, until it is dropped.
pub(in crate::crawl::source) struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Pace {
    /// Requests begin `interval` apart.
    pub(in crate::crawl::source) fn new(interval: Duration, connections: usize) -> Self {
        Self {
            interval,
            connections: Arc::new(Semaphore::new(connections)),
            next: Mutex::new(Instant::now()),
        }
    }

    /// Wait for leave to ask. The answer is to be read while it is held.
    pub(super) async fn turn(&self) -> Turn {
        // The semaphore is never closed.
        let permit = self.connections.clone().acquire_owned().await.ok();
        let mut next = self.next.lock().await;
        tokio::time::sleep_until(*next).await;
        *next = Instant::now() + self.interval;
        Turn { _permit: permit }
    }

    /// The service wants to be left alone for so long.
    pub(super) async fn hold(&self, time: Duration) {
        let mut next = self.next.lock().await;
        *next = (*next).max(Instant::now() + time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_begin_apart_and_one_at_a_time() {
        let interval = Duration::from_millis(40);
        let pace = Arc::new(Pace::new(interval, 1));
        let began = Instant::now();
        let first = pace.turn().await;
        let second = tokio::spawn({
            let pace = pace.clone();
            async move {
                let _turn = pace.turn().await;
                Instant::now()
            }
        });
        tokio::time::sleep(2 * interval).await;
        assert!(!second.is_finished(), "two at a time");
        drop(first);
        assert!(second.await.unwrap() >= began + 2 * interval);
        let before = Instant::now();
        pace.hold(2 * interval).await;
        let _turn = pace.turn().await;
        assert!(before.elapsed() >= 2 * interval);
    }
}
