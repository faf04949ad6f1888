//! What a database does for the history. Every implementation passes the tests in `conformance.rs`.

use pybench_run::{BudgetCap, Reservation, RunError};

use super::{Listed, Spending};

/// Conversations in a database. What a method has written is on the disk when it returns.
pub(super) trait Backend: Send + Sync {
    /// Begins a conversation; nothing happens if it has begun. `now` is in milliseconds since 1970.
    fn begin(&self, id: &str, settings: &str, now: u64) -> Result<(), RunError>;

    /// At most so many conversations, the last one first.
    fn list(&self, most: usize) -> Result<Vec<Listed>, RunError>;

    /// The ids that begin with these digits, at most two.
    fn starting_with(&self, digits: &str) -> Result<Vec<String>, RunError>;

    /// The settings and all entries of a conversation; `None` if there is none.
    fn read(&self, id: &str) -> Result<Option<(String, Vec<String>)>, RunError>;

    /// Saves an entry; `false` if another one has its position. A conversation without a title gets this one.
    fn append(
        &self,
        id: &str,
        position: u64,
        json: &str,
        title: &str,
        now: u64,
    ) -> Result<bool, RunError>;

    /// Reserves the maximum cost of a call and returns its number; what was spent before if the limits do not allow it.
    fn reserve(
        &self,
        id: &str,
        most: Reservation,
        cap: BudgetCap,
    ) -> Result<Result<i64, Spending>, RunError>;

    /// Records what a call cost.
    fn settle(&self, call: i64, cost: Reservation) -> Result<(), RunError>;

    /// Forgets a call.
    fn release(&self, call: i64) -> Result<(), RunError>;

    /// What the calls of a conversation cost.
    fn spending(&self, id: &str) -> Result<Spending, RunError>;
}

/// Whether the limits allow a call after what was spent.
pub(super) fn allows(cap: BudgetCap, spent: Spending, most: Reservation) -> bool {
    let fits = |spent: u64, more: u64, cap: Option<u64>| {
        cap.is_none_or(|cap| spent.saturating_add(more) <= cap)
    };
    fits(spent.micro_usd, most.micro_usd, cap.micro_usd)
        && fits(spent.tokens, most.tokens, cap.tokens)
}

/// Sums of amounts below this fit the integers of databases.
pub(super) fn bounded(amount: u64) -> i64 {
    const MAX: u64 = 1 << 40;
    // It fits after that.
    amount.min(MAX) as i64
}
