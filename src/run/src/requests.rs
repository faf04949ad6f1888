//! The requests of a run to models: how many an endpoint is answering, and what makes others wait.
//!
//! Models count their requests here; the executor starts further units while those that it has wait for replies.

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

/// What keeps more work from being done at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The endpoint said that it is overloaded, or gets no faster with more requests.
    Endpoint,
    /// Requests or tokens per minute of the recipe, or a pause that the endpoint asked for.
    RateLimit,
    /// What is left of the budget may not suffice for more.
    Budget,
    /// Cells and other work of this machine.
    Cores,
    /// Memory for further sessions.
    Memory,
    /// The number that the recipe or an option gives.
    Recipe,
}

impl Bottleneck {
    const ALL: [Self; 6] = [
        Self::Endpoint,
        Self::RateLimit,
        Self::Budget,
        Self::Cores,
        Self::Memory,
        Self::Recipe,
    ];

    /// For people, after "limited by".
    pub fn describe(self) -> &'static str {
        match self {
            Self::Endpoint => "the endpoint",
            Self::RateLimit => "the rate limit",
            Self::Budget => "the budget",
            Self::Cores => "the cores",
            Self::Memory => "the memory",
            Self::Recipe => "the given concurrency",
        }
    }
}

/// Numbers of requests at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Requests that were sent and not answered yet.
    pub in_flight: usize,
    /// Requests that wait to be sent, by what they wait for.
    waiting: [usize; Bottleneck::ALL.len()],
}

impl RequestCounts {
    /// What most of the waiting requests wait for; `None` if none waits.
    pub fn bottleneck(&self) -> Option<Bottleneck> {
        let all = Bottleneck::ALL.into_iter();
        let most = all.max_by_key(|why| self.waiting[*why as usize]);
        most.filter(|why| self.waiting[*why as usize] > 0)
    }

    fn of(&mut self, counted: Counted) -> &mut usize {
        match counted {
            Counted::InFlight => &mut self.in_flight,
            Counted::Waiting(why) => &mut self.waiting[why as usize],
        }
    }
}

/// Counts the requests of a run, in this process.
#[derive(Debug, Default)]
pub struct Requests(watch::Sender<RequestCounts>);

#[derive(Clone, Copy, Debug)]
enum Counted {
    InFlight,
    Waiting(Bottleneck),
}

impl Requests {
    /// Counts a request that is sent, until the guard is dropped.
    pub fn sent(&self) -> RequestGuard<'_> {
        self.count(Counted::InFlight)
    }

    /// Counts a request that waits to be sent, until the guard is dropped.
    pub fn waiting(&self, why: Bottleneck) -> RequestGuard<'_> {
        self.count(Counted::Waiting(why))
    }

    /// The present counts, and later ones.
    pub fn subscribe(&self) -> watch::Receiver<RequestCounts> {
        self.0.subscribe()
    }

    fn count(&self, counted: Counted) -> RequestGuard<'_> {
        self.0.send_modify(|counts| *counts.of(counted) += 1);
        RequestGuard {
            requests: self,
            counted,
        }
    }
}

/// A counted request.
#[derive(Debug)]
pub struct RequestGuard<'a> {
    requests: &'a Requests,
    counted: Counted,
}

impl Drop for RequestGuard<'_> {
    fn drop(&mut self) {
        let less = |counts: &mut RequestCounts| *counts.of(self.counted) -= 1;
        self.requests.0.send_modify(less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bottleneck_is_what_most_requests_wait_for() {
        let requests = Requests::default();
        let counts = || *requests.subscribe().borrow();
        let sent = requests.sent();
        assert_eq!((counts().in_flight, counts().bottleneck()), (1, None));
        let budget = requests.waiting(Bottleneck::Budget);
        assert_eq!(counts().bottleneck(), Some(Bottleneck::Budget));
        let endpoint = [0, 1].map(|_| requests.waiting(Bottleneck::Endpoint));
        assert_eq!(counts().bottleneck(), Some(Bottleneck::Endpoint));
        drop((sent, budget, endpoint));
        assert_eq!(counts(), RequestCounts::default());
    }
}
