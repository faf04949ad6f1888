//! The turns of the attempts that this process makes, of which the queue of a run is told.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers of turns by unit; one that is unknown has made none.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<String, u64>>);

impl Turns {
    /// Sets the number of turns of a unit, such as of one that is continued.
    pub fn set(&self, item: &str, turns: u64) {
        self.lock().insert(item.to_owned(), turns);
    }

    /// Counts a turn.
    pub fn add(&self, item: &str) {
        *self.lock().entry(item.to_owned()).or_default() += 1;
    }

    /// The number of turns of a unit.
    pub fn of(&self, item: &str) -> u64 {
        self.lock().get(item).copied().unwrap_or(0)
    }

    /// Removes a unit whose attempt has ended.
    pub(crate) fn forget(&self, item: &str) {
        self.lock().remove(item);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        // Every change is complete before the lock is released, also by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_counted_from_where_an_attempt_continues() {
        let turns = Turns::default();
        turns.add("new");
        turns.set("continued", 3);
        turns.add("continued");
        assert_eq!((turns.of("new"), turns.of("continued")), (1, 4));
        turns.forget("continued");
        assert_eq!(turns.of("continued"), 0);
    }
}
