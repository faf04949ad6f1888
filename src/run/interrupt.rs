//! Ctrl-C as a value: the first request finishes what is in flight, the second stops now.

use std::sync::Arc;

use tokio::sync::watch;

/// How urgently a run is asked to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Nobody asked.
    #[default]
    None,
    /// Start nothing new; finish what is in flight.
    Finish,
    /// Stop now; what is in flight is dropped and goes on with the next command.
    Now,
}

/// A shared request to stop. Clones see the same request.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<watch::Sender<Urgency>>);

impl Default for Interrupt {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Urgency::None)))
    }
}

impl Interrupt {
    /// Nobody asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ask once more: first `Finish`, then `Now`. Returns what is asked for from here on.
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

    /// What is asked for.
    pub fn urgency(&self) -> Urgency {
        *self.0.borrow()
    }

    /// Whether anybody asked to stop: start nothing new.
    pub fn requested(&self) -> bool {
        self.urgency() >= Urgency::Finish
    }

    /// Resolves once at least `urgency` is asked for.
    pub async fn wait(&self, urgency: Urgency) {
        let mut receiver = self.0.subscribe();
        // The sender lives in `self`, so waiting cannot fail before it is satisfied.
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
