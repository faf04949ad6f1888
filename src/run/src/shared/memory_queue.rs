//! A queue in memory, for tests: it delivers units as Temporal does.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::Round;
use super::queue::{Delivery, DeliveryEnd, UnitQueue};
use crate::RunError;

/// Time that a poll waits for a unit.
const POLL: Duration = Duration::from_millis(200);

#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryQueue(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    window: usize,
    /// Open units by number; the time from which they can be delivered, unless they are with a process.
    open: BTreeMap<u64, (String, Option<Instant>)>,
    done: HashSet<String>,
    next: u64,
    /// Loses the next units that are put.
    loses: usize,
}

impl Default for State {
    fn default() -> Self {
        Self {
            window: 1_000,
            open: BTreeMap::new(),
            done: HashSet::new(),
            next: 0,
            loses: 0,
        }
    }
}

impl MemoryQueue {
    /// Keeps at most this many units that no process has leased.
    pub(crate) fn set_window(&self, window: usize) {
        self.lock().window = window;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Loses this many of the units that are put next.
    pub(crate) fn lose(&self, count: usize) {
        self.lock().loses = count;
    }

    pub(crate) fn open(&self) -> usize {
        self.lock().open.len()
    }

    fn try_take(&self) -> Option<(u64, String)> {
        let now = Instant::now();
        let mut state = self.lock();
        let mut units = state.open.iter_mut();
        let (number, (item, from)) =
            units.find(|(_, (_, from))| from.is_some_and(|from| from <= now))?;
        *from = None;
        Some((*number, item.clone()))
    }
}

#[async_trait]
impl UnitQueue for MemoryQueue {
    fn window(&self) -> usize {
        self.lock().window
    }

    async fn put(&self, _round: &Round, items: &[String]) -> Result<Vec<String>, RunError> {
        let mut state = self.lock();
        let mut done = Vec::new();
        for item in items {
            if state.done.contains(item) {
                done.push(item.clone());
            } else if state.loses > 0 {
                state.loses -= 1;
            } else if !state.open.values().any(|(open, _)| open == item) {
                let number = state.next;
                state.next += 1;
                state
                    .open
                    .insert(number, (item.clone(), Some(Instant::now())));
            }
        }
        Ok(done)
    }

    async fn take(&self, _round: &Round) -> Result<Option<Box<dyn Delivery>>, RunError> {
        let since = Instant::now();
        while since.elapsed() < POLL {
            if let Some((number, item)) = self.try_take() {
                return Ok(Some(Box::new(MemoryDelivery {
                    queue: self.clone(),
                    number,
                    item,
                    end: DeliveryEnd::Again(Duration::ZERO),
                })));
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(None)
    }

    async fn clear(&self) -> Result<(), RunError> {
        self.lock().open.clear();
        Ok(())
    }
}

struct MemoryDelivery {
    queue: MemoryQueue,
    number: u64,
    item: String,
    end: DeliveryEnd,
}

#[async_trait]
impl Delivery for MemoryDelivery {
    fn item(&self) -> &str {
        &self.item
    }

    fn beat(&self, _turn: u64) {}

    async fn end(mut self: Box<Self>, end: DeliveryEnd) {
        self.end = end;
    }
}

impl Drop for MemoryDelivery {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        match self.end {
            DeliveryEnd::Done => {
                state.open.remove(&self.number);
                state.done.insert(self.item.clone());
            }
            DeliveryEnd::Closed(_) => {
                state.open.remove(&self.number);
            }
            DeliveryEnd::Again(wait) => {
                let unit = (self.item.clone(), Some(Instant::now() + wait));
                state.open.insert(self.number, unit);
            }
        }
    }
}
