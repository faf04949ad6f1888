//! Limits the rate of requests to a service.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Limits the number of concurrent requests and the interval between their starts.
pub struct Throttle {
    interval: Duration,
    connections: Arc<Semaphore>,
    next: Mutex<Instant>,
}

/// Permission for one request, which ends when this is dropped.
pub struct ThrottleGuard {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Throttle {
    /// Allows `connections` concurrent requests that start at least `interval` apart.
    pub fn new(interval: Duration, connections: usize) -> Self {
        Self {
            interval,
            connections: Arc::new(Semaphore::new(connections)),
            next: Mutex::new(Instant::now()),
        }
    }

    /// Waits until a request may start. Hold the guard until the response has been read.
    pub async fn acquire(&self) -> ThrottleGuard {
        // The semaphore is never closed.
        let permit = self.connections.clone().acquire_owned().await.ok();
        let mut next = self.next.lock().await;
        tokio::time::sleep_until(*next).await;
        *next = Instant::now() + self.interval;
        ThrottleGuard { _permit: permit }
    }

    /// Delays all requests by `time`, as the service asked.
    pub async fn delay(&self, time: Duration) {
        let mut next = self.next.lock().await;
        *next = (*next).max(Instant::now() + time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_start_apart_and_one_at_a_time() {
        let interval = Duration::from_millis(40);
        let throttle = Arc::new(Throttle::new(interval, 1));
        let began = Instant::now();
        let first = throttle.acquire().await;
        let second = tokio::spawn({
            let throttle = throttle.clone();
            async move {
                let _guard = throttle.acquire().await;
                Instant::now()
            }
        });
        tokio::time::sleep(2 * interval).await;
        assert!(!second.is_finished(), "two at a time");
        drop(first);
        assert!(second.await.unwrap() >= began + 2 * interval);
        let before = Instant::now();
        throttle.delay(2 * interval).await;
        let _guard = throttle.acquire().await;
        assert!(before.elapsed() >= 2 * interval);
    }
}
