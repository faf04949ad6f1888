//! One interpreter of a sandbox: runs one cell at a time, can be interrupted, restarted and ended by
//! others.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::Mutex as AsyncMutex;

use super::error::Refusal;
use super::registry::Permits;
use crate::interpreter::{InterruptHandle, Observation, Session, Watcher};

/// Cells that may wait for the one that runs.
const MAX_WAITING: usize = 16;

/// How often a cell that has to end is interrupted until it does.
const AGAIN: Duration = Duration::from_millis(200);

/// An interpreter.
pub(super) struct Kernel {
    pub(super) id: String,
    /// The folder it began in, as sessions see it.
    pub(super) cwd: String,
    session: AsyncMutex<Option<Box<dyn Session>>>,
    interrupt: Mutex<InterruptHandle>,
    cells: AtomicU64,
    /// Cells that run or wait.
    busy: AtomicUsize,
    /// Somebody asked for the interrupt of the cell that runs.
    asked: AtomicBool,
    ended: AtomicBool,
    _permits: Permits,
}

/// What a cell did.
pub(super) struct Ran {
    pub(super) observation: Observation,
    /// Number of the cell, from 1.
    pub(super) count: u64,
    /// It was interrupted because somebody asked, not for its time.
    pub(super) asked: bool,
}

/// Code that is run before and after a cell, without being counted or shown.
pub(super) struct Around {
    pub(super) before: String,
    pub(super) after: String,
}

async fn aside(session: &mut dyn Session, code: &str) -> Result<(), Refusal> {
    match session.execute(code).await?.error {
        None => Ok(()),
        Some(error) => Err(Refusal::bad(format!("preparing: {}", error.traceback))),
    }
}

struct Busy<'a>(&'a AtomicUsize);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Kernel {
    pub(super) fn new(
        id: String,
        cwd: String,
        session: Box<dyn Session>,
        permits: Permits,
    ) -> Self {
        Self {
            id,
            cwd,
            interrupt: Mutex::new(session.interrupt_handle()),
            session: AsyncMutex::new(Some(session)),
            cells: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            asked: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            _permits: permits,
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0
    }

    /// Interrupt the cell that runs, if one does.
    pub(super) fn interrupt(&self) {
        self.asked.store(true, Ordering::Release);
        let handle = self
            .interrupt
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        handle.interrupt();
    }

    /// Run a cell, in a task of its own: a session must not be dropped in the middle of one. When the
    /// watcher's listener goes, the cell is interrupted.
    pub(super) async fn run(
        self: Arc<Self>,
        code: String,
        around: Option<Around>,
        watcher: Watcher,
    ) -> Result<Ran, Refusal> {
        let kernel = self;
        let task = tokio::spawn(async move { kernel.run_here(&code, around, watcher).await });
        task.await.unwrap_or_else(|error| {
            tracing::error!("a cell's task failed: {error}");
            Err(Refusal::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the session failed",
            ))
        })
    }

    async fn run_here(
        &self,
        code: &str,
        around: Option<Around>,
        watcher: Watcher,
    ) -> Result<Ran, Refusal> {
        let waiting = self.busy.fetch_add(1, Ordering::AcqRel);
        let _busy = Busy(&self.busy);
        if waiting > MAX_WAITING {
            return Err(Refusal::too_many(format!(
                "{MAX_WAITING} cells wait already"
            )));
        }
        let mut slot = tokio::select! {
            slot = self.session.lock() => slot,
            () = watcher.gone() => return Err(Refusal::bad("the client is gone")),
        };
        let session = slot
            .as_mut()
            .filter(|_| !self.ended.load(Ordering::Acquire));
        let session = session.ok_or_else(|| Refusal::missing("the session"))?;
        if let Some(around) = &around {
            aside(session.as_mut(), &around.before).await?;
        }
        self.asked.store(false, Ordering::Release);
        let count = self.cells.fetch_add(1, Ordering::AcqRel) + 1;
        let observation = {
            let mut running = session.execute_live(code, watcher.clone());
            tokio::select! {
                observation = &mut running => observation,
                () = watcher.gone() => {
                    self.interrupt();
                    running.await
                }
            }?
        };
        let asked = self.asked.load(Ordering::Acquire);
        if let Some(around) = &around
            && let Err(refusal) = aside(session.as_mut(), &around.after).await
        {
            tracing::debug!("after a cell: {}", refusal.message);
        }
        Ok(Ran {
            observation,
            count,
            asked,
        })
    }

    /// A further interpreter in the same workspace. Waits for the cell that runs.
    pub(super) async fn sibling(&self) -> Result<Box<dyn Session>, Refusal> {
        let mut slot = self.session.lock().await;
        let session = slot
            .as_mut()
            .ok_or_else(|| Refusal::missing("the session"))?;
        Ok(session.sibling().await?)
    }

    /// Run code that is not counted or shown.
    pub(super) async fn aside(&self, code: &str) -> Result<(), Refusal> {
        let mut slot = self.session.lock().await;
        let session = slot
            .as_mut()
            .ok_or_else(|| Refusal::missing("the session"))?;
        aside(session.as_mut(), code).await
    }

    /// Begin anew, with no variables, in the same workspace.
    pub(super) async fn restart(&self) -> Result<(), Refusal> {
        let mut slot = self.take_over().await;
        let session = slot
            .as_mut()
            .ok_or_else(|| Refusal::missing("the session"))?;
        let fresh = session.sibling().await?;
        *self
            .interrupt
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = fresh.interrupt_handle();
        self.cells.store(0, Ordering::Release);
        if let Some(old) = slot.replace(fresh) {
            old.close().await?;
        }
        Ok(())
    }

    /// End it. A cell that runs is interrupted, and killed where it does not heed that.
    pub(super) async fn end(&self) {
        self.ended.store(true, Ordering::Release);
        let session = self.take_over().await.take();
        if let Some(session) = session
            && let Err(error) = session.close().await
        {
            tracing::warn!("closing a session: {error}");
        }
    }

    /// The session, once its cell has ended.
    async fn take_over(&self) -> tokio::sync::MutexGuard<'_, Option<Box<dyn Session>>> {
        let lock = self.session.lock();
        tokio::pin!(lock);
        loop {
            // An interrupt that comes before a cell begins is forgotten: say it again.
            self.interrupt();
            tokio::select! {
                slot = &mut lock => return slot,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }
}
