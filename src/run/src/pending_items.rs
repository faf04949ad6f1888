//! The items of a stage that an executor has not started yet.

use std::collections::VecDeque;

use crate::{Items, Journal, RetryFailed, RunError};

/// Items whose units are pending, by number, so that a run of many items does not hold them as text.
pub(crate) struct PendingItems<'a> {
    items: &'a dyn Items,
    numbers: VecDeque<usize>,
    /// Units of the other items.
    settled: u64,
}

impl<'a> PendingItems<'a> {
    /// Enqueues the items of a stage, makes failed units pending again as asked, and finds those that are pending.
    pub(crate) fn enqueue(
        journal: &Journal,
        stage: &str,
        items: &'a dyn Items,
        retry_failed: RetryFailed,
    ) -> Result<Self, RunError> {
        let names = || (0..items.len()).map(|number| items.get(number));
        journal.enqueue(stage, names())?;
        journal.retry_failed(stage, retry_failed)?;
        let (pending, settled) = journal.pending(stage, names())?;
        Ok(Self {
            items,
            numbers: pending.into(),
            settled,
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Items that have not been taken.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Units that had ended before.
    pub(crate) fn settled(&self) -> u64 {
        self.settled
    }

    /// Takes the first item.
    pub(crate) fn next(&mut self) -> Option<String> {
        let number = self.numbers.pop_front()?;
        Some(self.items.get(number).into_owned())
    }

    /// Takes the first items, at most `count`.
    pub(crate) fn take(&mut self, count: usize) -> Vec<String> {
        let count = count.min(self.numbers.len());
        let numbers = self.numbers.drain(..count);
        numbers
            .map(|number| self.items.get(number).into_owned())
            .collect()
    }
}
