//! Threads that compute one forward pass together. Within a pass they wait for each other by spinning; between passes
//! they sleep.
//!
//! A phase ends when its tasks are done, not when all threads have come: a thread that the system has suspended delays
//! the others only by the task that it holds.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Spins before a thread gives its processor to others that are ready.
const SPINS: usize = 500;
/// Spins and yields before an idle thread sleeps.
const IDLE_SPINS: usize = 1_000;

/// What every thread runs; the pointer is valid until the pass is closed and all threads have left it.
#[derive(Clone, Copy)]
struct Work(*const (dyn Fn(&Member<'_>) + Sync));

// SAFETY: the function is `Sync`, and [`Pool::run`] keeps it alive while threads use it.
unsafe impl Send for Work {}

#[derive(Default)]
struct Posted {
    /// Number of passes so far.
    pass: usize,
    /// The work of the pass while it is open.
    work: Option<Work>,
    end: bool,
}

struct State {
    posted: Mutex<Posted>,
    wake: Condvar,
    /// Equal to `Posted::pass`, to be read without the lock.
    pass: AtomicUsize,
    /// Threads in the pass besides the one that opened it.
    inside: AtomicUsize,
    /// The number of the phase in the high half, of its next task in the low half.
    next: AtomicU64,
    /// Completed tasks of the phase.
    done: AtomicUsize,
    /// A thread panicked: the others must not wait for it.
    failed: AtomicBool,
}

/// A thread of a pass.
pub(crate) struct Member<'a> {
    /// From 0.
    pub(crate) index: usize,
    /// Phases that this thread has been in.
    phase: Cell<u64>,
    state: &'a State,
}

impl Member<'_> {
    /// Runs `task(0)` to `task(count - 1)`, each in whichever thread is free, and waits until all are done. Every
    /// thread of the pass must make the same calls.
    pub(crate) fn share(&self, count: usize, mut task: impl FnMut(usize)) {
        if count == 0 {
            return;
        }
        let phase = self.phase.replace(self.phase.get() + 1);
        while let Some(index) = self.claim(phase, count) {
            task(index);
            if self.state.done.fetch_add(1, Ordering::AcqRel) + 1 == count {
                self.state.done.store(0, Ordering::Relaxed);
                self.state.next.store((phase + 1) << 32, Ordering::Release);
            }
        }
        spin_until(|| {
            let failed = self.state.failed.load(Ordering::Relaxed);
            assert!(!failed, "another thread of the pass failed");
            self.state.next.load(Ordering::Acquire) >> 32 != phase
        });
    }

    /// The next task of a phase. `None` if all are taken, or if the phase is over.
    fn claim(&self, phase: u64, count: usize) -> Option<usize> {
        let next = |word: u64| {
            let index = (word & 0xffff_ffff) as usize;
            (word >> 32 == phase && index < count).then_some(word + 1)
        };
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        let claimed = self.state.next.fetch_update(set, fetch, next);
        claimed.ok().map(|word| (word & 0xffff_ffff) as usize)
    }
}

impl State {
    /// Runs the work of a pass in this thread.
    fn run(&self, index: usize, work: &(dyn Fn(&Member<'_>) + Sync)) -> std::thread::Result<()> {
        let member = Member {
            index,
            phase: Cell::new(0),
            state: self,
        };
        let result = catch_unwind(AssertUnwindSafe(|| work(&member)));
        if result.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, Posted> {
        self.posted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a pass after `seen` and enters it. `None` at the end of the pool.
    fn enter(&self, seen: usize) -> Option<(usize, Work)> {
        for spin in 0..IDLE_SPINS {
            if self.pass.load(Ordering::Acquire) != seen {
                break;
            }
            relax(spin);
        }
        let mut posted = self.lock();
        while !posted.end {
            if let Some(work) = posted.work
                && posted.pass != seen
            {
                self.inside.fetch_add(1, Ordering::AcqRel);
                return Some((posted.pass, work));
            }
            let woken = self.wake.wait(posted);
            posted = woken.unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Opens a pass.
    fn open(&self, work: Work) {
        self.next.store(0, Ordering::Relaxed);
        self.done.store(0, Ordering::Relaxed);
        self.failed.store(false, Ordering::Relaxed);
        let mut posted = self.lock();
        posted.work = Some(work);
        posted.pass += 1;
        self.pass.store(posted.pass, Ordering::Release);
        drop(posted);
        self.wake.notify_all();
    }

    /// Closes a pass: waits for the threads in it; none can enter it any more.
    fn close(&self) {
        self.lock().work = None;
        spin_until(|| self.inside.load(Ordering::Acquire) == 0);
    }
}

fn relax(spin: usize) {
    match spin < SPINS {
        true => std::hint::spin_loop(),
        false => std::thread::yield_now(),
    }
}

fn spin_until(mut done: impl FnMut() -> bool) {
    let mut spin = 0;
    while !done() {
        relax(spin);
        spin += 1;
    }
}

/// The threads. The one that calls [`Pool::run`] is one of them.
pub(crate) struct Pool {
    state: Arc<State>,
    others: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool of {}", self.threads())
    }
}

impl Pool {
    /// A pool of at least one thread. An error is one of the system's that a thread could not be started.
    pub(crate) fn new(threads: usize) -> std::io::Result<Self> {
        let state = Arc::new(State {
            posted: Mutex::default(),
            wake: Condvar::new(),
            pass: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            done: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
        });
        let mut pool = Self {
            state,
            others: vec![],
        };
        for index in 1..threads {
            let state = pool.state.clone();
            let thread = std::thread::Builder::new().name(format!("inference {index}"));
            pool.others.push(thread.spawn(move || {
                let mut seen = 0;
                while let Some((pass, work)) = state.enter(seen) {
                    seen = pass;
                    // SAFETY: `Pool::run` waits until this thread has left the pass.
                    let _ = state.run(index, unsafe { &*work.0 });
                    state.inside.fetch_sub(1, Ordering::AcqRel);
                }
            })?);
        }
        Ok(pool)
    }

    pub(crate) fn threads(&self) -> usize {
        self.others.len() + 1
    }

    /// Runs `work` in this thread, and in every other one that is not too late. Panics if it panics in one of them.
    pub(crate) fn run(&mut self, work: &(dyn Fn(&Member<'_>) + Sync)) {
        let pointer: *const (dyn Fn(&Member<'_>) + Sync + '_) = work;
        // SAFETY: only the lifetime changes; no thread uses the work after `close`.
        let pointer: *const (dyn Fn(&Member<'_>) + Sync + 'static) =
            unsafe { std::mem::transmute(pointer) };
        self.state.open(Work(pointer));
        let result = self.state.run(0, work);
        self.state.close();
        if let Err(panic) = result {
            resume_unwind(panic);
        }
        let failed = self.state.failed.load(Ordering::Relaxed);
        assert!(!failed, "a thread of the pass failed");
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.state.lock().end = true;
        // An idle thread that still spins looks at the lock then.
        self.state.pass.fetch_add(1, Ordering::Release);
        self.state.wake.notify_all();
        for thread in self.others.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_each_other_in_all_threads() {
        let mut pool = Pool::new(3).unwrap();
        for _ in 0..50 {
            let cells: Vec<AtomicUsize> = (0..40).map(|_| AtomicUsize::new(0)).collect();
            pool.run(&|member| {
                for phase in 0..20 {
                    member.share(cells.len(), |i| {
                        // A neighbor that is a phase behind or ahead would show here.
                        let other = cells[(i + 7) % cells.len()].load(Ordering::Relaxed);
                        assert!(other == phase || other == phase + 1);
                        cells[i].fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
            assert!(cells.iter().all(|c| c.load(Ordering::Relaxed) == 20));
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives_it() {
        let mut pool = Pool::new(2).unwrap();
        for _ in 0..2 {
            let failed = catch_unwind(AssertUnwindSafe(|| {
                pool.run(&|member| member.share(5, |i| assert!(i != 3, "on purpose")));
            }));
            assert!(failed.is_err());
        }
        let count = AtomicUsize::new(0);
        pool.run(&|member| {
            member.share(9, |_| {
                count.fetch_add(1, Ordering::Relaxed);
            })
        });
        assert_eq!(count.into_inner(), 9);
    }
}
