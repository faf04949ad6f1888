//! Ctrl-C as a value: the first request lets work in flight finish, the second stops it.

use std::sync::Arc;

use tokio::sync::watch;

/// How urgently a run should stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// No request.
    #[default]
    None,
    /// Start nothing new, and finish work in flight.
    Finish,
    /// Stop now; work in flight is dropped and the next command resumes it.
    Now,
}

/// A request to stop, shared by all clones.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<watch::Sender<Urgency>>);

impl Default for Interrupt {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Urgency::None)))
    }
}

impl Interrupt {
    pub fn new() -> Self {
        Self::default()
    }

    /// Raises the urgency: first to `Finish`, then to `Now`. Returns the new urgency.
    pub fn raise(&self) -> Urgency {
        let mut urgency = Urgency::Now;
        self.0.send_modify(|current| {
            *current = match *current {
                Urgency::None => Urgency::Finish,
                Urgency::Finish | Urgency::Now => Urgency::Now,
            };
            urgency = *current;
        });
        urgency
    }

    pub fn urgency(&self) -> Urgency {
        *self.0.borrow()
    }

    /// Whether a stop was requested, so that nothing new may start.
    pub fn requested(&self) -> bool {
        self.urgency() >= Urgency::Finish
    }

    /// Waits until at least `urgency` is requested.
    pub async fn wait(&self, urgency: Urgency) {
        let mut receiver = self.0.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = receiver.wait_for(|current| *current >= urgency).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn first_finishes_second_stops() {
        let interrupt = Interrupt::new();
        assert!(!interrupt.requested());
        let other = interrupt.clone();
        let waiting = tokio::spawn(async move { other.wait(Urgency::Now).await });
        assert_eq!(interrupt.raise(), Urgency::Finish);
        interrupt.wait(Urgency::Finish).await;
        assert!(!waiting.is_finished());
        assert_eq!(interrupt.raise(), Urgency::Now);
        assert_eq!(interrupt.raise(), Urgency::Now);
        waiting.await.unwrap();
    }
}
