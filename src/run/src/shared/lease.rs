//! The leases of the units that this process works on.
//!
//! A thread of its own renews them, in PostgreSQL over a connection of its own: neither a stage that waits for a store nor a
//! slow statement delays it. An attempt ends before its lease does, by a clock that also counts the time in which the process
//! or the machine was suspended. The guard of the sessions learns when that is, for a process that cannot end them itself.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, ready};
use std::time::Duration;

use pybench_interpreter::session_guard;
use tokio::time::Instant;

use super::periodic::Periodic;
use crate::boot_clock::since_boot;
use crate::journal::{LeasedOffer, lease_end};
use crate::{Journal, RunError, RunFolder};

/// Renewals within the duration of a lease.
const RENEWALS: u32 = 3;

/// The part of a lease that is left when an attempt ends because it was not renewed, so that its session ends in time.
const MARGIN: u32 = 8;

/// How often an attempt looks whether its lease is lost.
const MAX_CHECK: Duration = Duration::from_millis(500);

/// Deadline of a lease that another process has.
const LOST: u64 = 0;

/// Deadline of a lease whose attempt has ended.
const ENDED: u64 = u64::MAX;

/// Leases the units of one stage, and renews the leases until this is dropped.
#[derive(Debug)]
pub(super) struct Leases {
    keeper: Arc<Keeper>,
    _renewing: Periodic,
}

/// What the leases and the thread share.
#[derive(Debug)]
struct Keeper {
    folder: Arc<RunFolder>,
    stage: &'static str,
    seconds: u32,
    held: Mutex<Vec<Weak<Held>>>,
    /// Whether the journal could not be written the last time.
    is_away: Mutex<bool>,
}

/// A lease that is held.
#[derive(Debug)]
struct Held {
    item: String,
    /// End of the lease by the clock of the journal, Unix time in seconds; `None` if there is nothing to give back.
    until: Mutex<Option<i64>>,
    /// When the attempt ends unless the lease is renewed: milliseconds since the machine has started, or [`LOST`], or [`ENDED`].
    deadline: AtomicU64,
}

impl Leases {
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn new(
        folder: Arc<RunFolder>,
        stage: &'static str,
        duration: Duration,
    ) -> Result<Self, RunError> {
        let keeper = Arc::new(Keeper {
            folder,
            stage,
            seconds: u32::try_from(duration.as_secs().max(1)).unwrap_or(u32::MAX),
            held: Mutex::default(),
            is_away: Mutex::default(),
        });
        let (own, pause) = (keeper.clone(), keeper.duration() / RENEWALS);
        let renewing = Periodic::start("leases", pause, move || own.renew_all())?;
        Ok(Self {
            keeper,
            _renewing: renewing,
        })
    }

    /// Leases the first unit that a round offers.
    pub(super) fn next(&self, round: &str) -> Result<Option<Lease>, RunError> {
        self.take(|journal, stage, now, seconds| journal.lease_offer(round, stage, now, seconds))
    }

    /// Leases a unit that a round offers.
    pub(super) fn of(&self, round: &str, item: &str) -> Result<Option<Lease>, RunError> {
        self.take(|journal, stage, now, seconds| {
            journal.lease_offered(round, (stage, item), now, seconds)
        })
    }

    /// `request` gets the stage, the Unix time in milliseconds and the duration in seconds.
    fn take(
        &self,
        request: impl FnOnce(&Journal, &str, i64, i64) -> Result<Option<LeasedOffer>, RunError>,
    ) -> Result<Option<Lease>, RunError> {
        let keeper = &self.keeper;
        let asked = since_boot();
        let now = keeper.journal().now_millis()?;
        let offer = request(
            keeper.journal(),
            keeper.stage,
            now,
            i64::from(keeper.seconds),
        )?;
        Ok(offer.map(|offer| self.hold(offer, asked)))
    }

    /// `asked` is the time before the lease was requested.
    fn hold(&self, offer: LeasedOffer, asked: Duration) -> Lease {
        let held = Arc::new(Held {
            item: offer.item.clone(),
            until: Mutex::new(Some(offer.until)),
            deadline: AtomicU64::new(self.keeper.deadline(asked)),
        });
        self.keeper.held().push(Arc::downgrade(&held));
        self.keeper.limit_sessions();
        Lease {
            keeper: self.keeper.clone(),
            offer,
            held,
        }
    }
}

impl Keeper {
    fn journal(&self) -> &Journal {
        self.folder.journal()
    }

    fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// When an attempt ends whose lease was requested at `asked`, in milliseconds since the machine has started.
    fn deadline(&self, asked: Duration) -> u64 {
        let duration = self.duration();
        millis(asked + (duration - duration / MARGIN))
    }

    fn renew_all(&self) {
        let held: Vec<Arc<Held>> = {
            let mut held = self.held();
            held.retain(|lease| lease.strong_count() > 0);
            held.iter().filter_map(Weak::upgrade).collect()
        };
        for lease in held {
            if let Err(error) = self.renew(&lease) {
                *self.is_away() = true;
                let (stage, item) = (self.stage, &lease.item);
                tracing::warn!(stage, item, "cannot renew a lease: {error}");
            }
        }
        self.limit_sessions();
    }

    /// Tells the guard of the sessions when the first lease ends that is not renewed: it ends them between the end of that
    /// attempt and the end of the lease.
    fn limit_sessions(&self) {
        // Locked to the end, so that a slower thread does not set an older time.
        let held = self.held();
        let leases = held.iter().filter_map(Weak::upgrade);
        let deadlines = leases.map(|lease| lease.deadline.load(Ordering::Acquire));
        let first = deadlines.filter(|at| ![LOST, ENDED].contains(at)).min();
        let margin = self.duration() / MARGIN / 2;
        let left = |at| (Duration::from_millis(at) + margin).saturating_sub(since_boot());
        session_guard::limit(first.map(left));
    }

    fn renew(&self, lease: &Held) -> Result<(), RunError> {
        let mut until = lease.until();
        let Some(from) = *until else {
            return Ok(());
        };
        let asked = since_boot();
        let to = lease_end(self.journal().now_millis()?, self.seconds.into());
        let is_held = self
            .journal()
            .move_lease(self.stage, &lease.item, from, to)?;
        *self.is_away() = false;
        *until = is_held.then_some(to);
        let deadline = if is_held { self.deadline(asked) } else { LOST };
        lease.deadline.store(deadline, Ordering::Release);
        Ok(())
    }

    /// Gives a unit back. If the journal is away, its lease ends by itself: the end of a process does not wait for the journal
    /// once for each of its units.
    fn release(&self, item: &str, until: i64) {
        let mut is_away = self.is_away();
        if *is_away {
            return;
        }
        if let Err(error) = self.journal().move_lease(self.stage, item, until, 0) {
            *is_away = true;
            tracing::warn!("cannot release a lease: {error}");
        }
    }

    fn is_away(&self) -> MutexGuard<'_, bool> {
        // A plain value cannot be left inconsistent by a panic.
        self.is_away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, Vec<Weak<Held>>> {
        // A push or a removal is whole, also if a panic follows.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn until(&self) -> MutexGuard<'_, Option<i64>> {
        // A plain value cannot be left inconsistent by a panic.
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The lease of a unit. Dropping it gives the unit back, unless it has ended or another process has it.
#[derive(Debug)]
pub(super) struct Lease {
    keeper: Arc<Keeper>,
    pub(super) offer: LeasedOffer,
    held: Arc<Held>,
}

impl Lease {
    /// Waits until the attempt has to end because the lease is lost, or about to be; returns the reason. It looks at the clock
    /// whenever it is polled, so that the rest of a select is not polled after the deadline.
    pub(super) async fn lost(&self) -> &'static str {
        let mut wake = Box::pin(tokio::time::sleep(Duration::ZERO));
        poll_fn(|context| {
            loop {
                let deadline = self.held.deadline.load(Ordering::Acquire);
                if deadline == LOST {
                    return Poll::Ready("another process has the unit: its lease had ended here");
                }
                let left = deadline.saturating_sub(millis(since_boot()));
                if left == 0 {
                    return Poll::Ready("its lease could not be renewed in time");
                }
                ready!(wake.as_mut().poll(context));
                let next = Duration::from_millis(left).min(MAX_CHECK);
                wake.as_mut().reset(Instant::now() + next);
            }
        })
        .await
    }

    /// The process no longer has the unit, or is about to record how it ended: there is nothing to give back.
    pub(super) fn end(&self) {
        *self.held.until() = None;
        self.forget_deadline();
    }

    fn forget_deadline(&self) {
        self.held.deadline.store(ENDED, Ordering::Release);
        self.keeper.limit_sessions();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Before the lock, which a renewal keeps while the journal does not answer.
        self.forget_deadline();
        let until = self.held.until().take();
        if let Some(until) = until {
            self.keeper.release(&self.held.item, until);
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A run whose round `r` offers the unit `a` of the stage `s`.
    fn offered(root: &std::path::Path) -> Arc<RunFolder> {
        let folder = RunFolder::open(root, "").unwrap();
        folder.journal().enqueue("s", ["a"]).unwrap();
        folder.journal().offer("r", "s", &["a".to_owned()]).unwrap();
        Arc::new(folder)
    }

    #[tokio::test]
    async fn a_task_that_blocks_keeps_its_lease() {
        let root = tempfile::tempdir().unwrap();
        let folder = offered(root.path());
        let leases = Leases::new(folder.clone(), "s", SECOND * 6).unwrap();
        let lease = leases.next("r").unwrap().unwrap();
        let until = || folder.journal().leased_until("s", "a").unwrap();
        let first = until();
        while until() == first {
            std::thread::sleep(SECOND / 20);
        }
        assert!(leases.of("r", "a").unwrap().is_none(), "it was given away");
        tokio::select! {
            biased;
            reason = lease.lost() => panic!("{reason}"),
            () = std::future::ready(()) => {}
        }
        // What is given back can be leased at once, and was not lost.
        drop(lease);
        let again = leases.next("r").unwrap().unwrap();
        assert_eq!((again.offer.attempt, again.offer.lost), (2, 0));
    }

    #[tokio::test]
    async fn an_attempt_ends_when_another_process_has_its_unit() {
        let root = tempfile::tempdir().unwrap();
        let folder = offered(root.path());
        let leases = Leases::new(folder.clone(), "s", SECOND * 3_600).unwrap();
        let lease = leases.next("r").unwrap().unwrap();
        let journal = folder.journal();
        let until = || journal.leased_until("s", "a").unwrap().unwrap();
        let far = until() + 1_000;
        assert!(journal.move_lease("s", "a", until(), far).unwrap());
        leases.keeper.renew_all();
        assert!(lease.lost().await.starts_with("another process"));
        drop(lease);
        assert_eq!(until(), far, "the lease of the other one stays");
    }

    #[test]
    fn a_journal_that_is_away_is_not_waited_for_by_each_lease() {
        let root = tempfile::tempdir().unwrap();
        let folder = offered(root.path());
        let leases = Leases::new(folder.clone(), "s", SECOND * 3_600).unwrap();
        let lease = leases.next("r").unwrap().unwrap();
        let until = || folder.journal().leased_until("s", "a").unwrap().unwrap();
        *leases.keeper.is_away() = true;
        drop(lease);
        assert!(until() > 0, "it was given back");
    }

    #[tokio::test]
    async fn an_attempt_ends_before_a_lease_that_is_not_renewed() {
        let root = tempfile::tempdir().unwrap();
        let folder = offered(root.path());
        let leases = Leases::new(folder, "s", SECOND * 3_600).unwrap();
        let lease = leases.next("r").unwrap().unwrap();
        let now = millis(since_boot());
        let deadline = lease.held.deadline.load(Ordering::Acquire);
        assert!(deadline > now && deadline < now + 3_600_000);
        // As after an hour of suspension.
        lease.held.deadline.store(now, Ordering::Release);
        assert_eq!(lease.lost().await, "its lease could not be renewed in time");
    }
}
