//! Attempts at units, and those that a worker has leased and not ended.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::RunError;

/// One attempt at a unit. A write that carries it is refused once another worker has leased the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt<'a> {
    pub(super) stage: &'a str,
    pub(super) item: &'a str,
    /// Number of the attempt, from 1.
    pub(super) number: u32,
}

impl Attempt<'_> {
    /// The error of a write that another attempt has overtaken.
    pub(super) fn lost(&self) -> RunError {
        RunError::LeaseLost(format!(
            "attempt {} at {} of stage {} lost its lease: another worker has begun the unit again",
            self.number, self.item, self.stage
        ))
    }
}

/// Numbers of attempts by item and stage.
#[derive(Debug, Default)]
pub(super) struct LeasedUnits(Mutex<HashMap<String, Vec<(String, u32)>>>);

impl LeasedUnits {
    pub(super) fn insert(&self, stage: &str, item: &str, number: u32) {
        let mut units = self.lock();
        let attempts = units.entry(item.to_owned()).or_default();
        attempts.retain(|(other, _)| other != stage);
        attempts.push((stage.to_owned(), number));
    }

    pub(super) fn remove(&self, stage: &str, item: &str) {
        let mut units = self.lock();
        if let Some(attempts) = units.get_mut(item) {
            attempts.retain(|(other, _)| other != stage);
            if attempts.is_empty() {
                units.remove(item);
            }
        }
    }

    pub(super) fn number(&self, stage: &str, item: &str) -> Option<u32> {
        let units = self.lock();
        let mut attempts = units.get(item)?.iter();
        attempts
            .find(|(other, _)| other == stage)
            .map(|(_, number)| *number)
    }

    /// Stage and number of the attempt at an item of that name that was leased last.
    pub(super) fn last(&self, item: &str) -> Option<(String, u32)> {
        self.lock().get(item)?.last().cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<(String, u32)>>> {
        // Every change is complete before the lock is released, also by a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
