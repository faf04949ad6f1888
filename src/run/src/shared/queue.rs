//! A queue outside of the journal that carries offered units to the processes that work on a round, such as Temporal.
//!
//! The journal decides which units are offered, who has leased one, and how it ended. A queue decides where and when
//! the next attempt is made. It may deliver a unit twice, late or never: a unit is leased in the journal before it is worked on,
//! and the coordinator puts offered units into the queue again if nothing ends for a while.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use super::Round;
use crate::RunError;

/// Carries offered units to processes.
#[async_trait]
pub trait UnitQueue: Debug + Send + Sync {
    /// Maximum number of offered units that no process has leased.
    fn window(&self) -> usize;

    /// Puts offered units into the queue; those that are in it stay as they are. Returns the units that the queue has
    /// delivered before and that ended with [`DeliveryEnd::Done`]: it does not deliver them again.
    ///
    /// # Errors
    /// [`RunError::Environment`] if the server of the queue does not answer.
    async fn put(&self, round: &Round, items: &[String]) -> Result<Vec<String>, RunError>;

    /// Waits for a unit; `None` if there was none for a while. Waiting can be dropped at any time.
    ///
    /// # Errors
    /// As [`UnitQueue::put`].
    async fn take(&self, round: &Round) -> Result<Option<Box<dyn Delivery>>, RunError>;

    /// Removes all units of the run. Attempts that are in progress go on, and the queue ignores how they end.
    ///
    /// # Errors
    /// As [`UnitQueue::put`].
    async fn clear(&self) -> Result<(), RunError>;
}

/// A unit that the queue has delivered to this process. Dropping it lets the queue deliver it again.
#[async_trait]
pub trait Delivery: Send + Sync {
    fn item(&self) -> &str;

    /// Tells the queue that the unit is in work, and does not wait for it. `turn` is the number of turns that the attempt has
    /// made.
    fn beat(&self, turn: u64);

    /// Tells the queue how the attempt ended. If the queue cannot be told, it delivers the unit again after a while, and finds
    /// it ended.
    async fn end(self: Box<Self>, end: DeliveryEnd);
}

/// What a queue does with a unit that it has delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryEnd {
    /// The unit is done: the queue never delivers it again.
    Done,
    /// The unit has failed, waits for a later round or is not offered, with the reason. It can be put again.
    Closed(String),
    /// The queue delivers the unit again, not before this time has passed.
    Again(Duration),
}
