//! Bounds the memory that frames take on the host, per cell and over all sessions. A session that exceeds a bound is
//! restarted; the other sessions go on.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum size of all frames of a cell, bytes. The runner stops sending outputs before.
pub(super) const MAX_CELL_FRAMES: usize = 64 << 20;

/// Maximum size of the frames of all running cells, bytes.
const MAX_ALL_FRAMES: usize = 512 << 20;

/// Size up to which the frames of a cell do not count toward the limit of all cells, bytes. Cells with little output
/// run on while others use up the limit.
const FREE_BYTES: usize = 1 << 20;

/// The sizes of the frames of all running cells.
static ALL_CELLS: SharedBudget = SharedBudget::new(MAX_ALL_FRAMES);

/// A limit that several cells share.
#[derive(Debug)]
struct SharedBudget {
    limit: usize,
    used: AtomicUsize,
}

/// A cell sent too much.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BudgetError {
    #[error("the cell sent more than {MAX_CELL_FRAMES} bytes of outputs")]
    Cell,
    #[error("all sessions together sent more than {0} bytes of outputs")]
    AllCells(usize),
}

/// Counts the frames of one cell.
#[derive(Debug)]
pub(super) struct CellFrames {
    shared: &'static SharedBudget,
    received: usize,
}

impl SharedBudget {
    const fn new(limit: usize) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
        }
    }

    fn take(&self, bytes: usize) -> Result<(), BudgetError> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .map_err(|_| BudgetError::AllCells(self.limit))?;
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Default for CellFrames {
    fn default() -> Self {
        Self::within(&ALL_CELLS)
    }
}

impl CellFrames {
    fn within(shared: &'static SharedBudget) -> Self {
        Self {
            shared,
            received: 0,
        }
    }

    /// Counts received bytes.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), BudgetError> {
        let received = self.received.saturating_add(bytes);
        if received > MAX_CELL_FRAMES {
            return Err(BudgetError::Cell);
        }
        self.shared
            .take(counted(received) - counted(self.received))?;
        self.received = received;
        Ok(())
    }

    /// Starts to count again, with this many bytes. `bytes` is at most what was counted.
    pub(super) fn reset(&mut self, bytes: usize) {
        let bytes = bytes.min(self.received);
        self.shared
            .give_back(counted(self.received) - counted(bytes));
        self.received = bytes;
    }
}

impl Drop for CellFrames {
    fn drop(&mut self) {
        self.reset(0);
    }
}

/// The bytes that count toward the limit of all cells.
fn counted(received: usize) -> usize {
    received.saturating_sub(FREE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_of_a_cell_is_a_limit() {
        static SHARED: SharedBudget = SharedBudget::new(usize::MAX);
        let mut cell = CellFrames::within(&SHARED);
        cell.add(MAX_CELL_FRAMES).unwrap();
        assert_eq!(cell.add(1), Err(BudgetError::Cell));
        assert_eq!(cell.add(usize::MAX), Err(BudgetError::Cell));
        cell.reset(0);
        cell.add(MAX_CELL_FRAMES).unwrap();
    }

    #[test]
    fn all_cells_share_a_limit_and_small_ones_are_free() {
        static SHARED: SharedBudget = SharedBudget::new(10 << 20);
        let [mut one, mut other, mut small] = [(); 3].map(|()| CellFrames::within(&SHARED));
        one.add(FREE_BYTES + (8 << 20)).unwrap();
        assert_eq!(other.add(4 << 20), Err(BudgetError::AllCells(10 << 20)));
        other.add(3 << 20).unwrap();
        small.add(FREE_BYTES).unwrap();
        assert!(small.add(1).is_err());
        drop(one);
        small.add(4 << 20).unwrap();
        drop((other, small));
        assert_eq!(SHARED.used.load(Ordering::Relaxed), 0);
    }
}
