//! One interpreter of a sandbox: runs one cell at a time; other requests can interrupt, restart and end it.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use tokio::sync::Mutex as AsyncMutex;

use super::client::Permits;
use super::error::ApiError;
use pybench_interpreter::{InterruptHandle, Session, Watcher};
use pybench_types::observation::Observation;

/// Maximum number of cells that wait for the running one.
const MAX_WAITING: usize = 16;

/// Interval for interrupting a cell until it ends.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// An interpreter and its queue of cells.
pub(super) struct Kernel {
    pub(super) id: String,
    /// Its initial working directory, as sessions see it.
    pub(super) cwd: String,
    session: AsyncMutex<Option<Box<dyn Session>>>,
    interrupt: Mutex<InterruptHandle>,
    cells: AtomicU64,
    /// Number of running and waiting cells.
    busy: AtomicUsize,
    /// Whether a client requested to interrupt the running cell.
    asked: AtomicBool,
    ended: AtomicBool,
    _permits: Permits,
}

/// The result of a cell.
pub(super) struct FinishedCell {
    pub(super) observation: Observation,
    /// Number of the cell, from 1.
    pub(super) count: u64,
    /// Whether a client requested an interrupt, rather than the time limit.
    pub(super) asked: bool,
}

/// Code that runs before and after a cell, without being counted or shown.
pub(super) struct HiddenCode {
    pub(super) before: String,
    pub(super) after: String,
}

async fn run_hidden(session: &mut dyn Session, code: &str) -> Result<(), ApiError> {
    match session.execute(code).await?.error {
        None => Ok(()),
        Some(error) => Err(ApiError::bad(format!(
            "preparing the cell: {}",
            error.traceback
        ))),
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

    /// Interrupts the running cell, if there is one.
    pub(super) fn interrupt(&self) {
        self.asked.store(true, Ordering::Release);
        let handle = self
            .interrupt
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        handle.interrupt();
    }

    /// Runs a cell in its own task, because a session must not be dropped while a cell runs. When the
    /// watcher's receiver is dropped, the cell is interrupted.
    pub(super) async fn run(
        self: Arc<Self>,
        code: String,
        hidden: Option<HiddenCode>,
        watcher: Watcher,
    ) -> Result<FinishedCell, ApiError> {
        let kernel = self;
        let task = tokio::spawn(async move { kernel.run_here(&code, hidden, watcher).await });
        task.await.unwrap_or_else(|error| {
            tracing::error!("a cell's task failed: {error}");
            Err(ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the session failed",
            ))
        })
    }

    async fn run_here(
        &self,
        code: &str,
        hidden: Option<HiddenCode>,
        watcher: Watcher,
    ) -> Result<FinishedCell, ApiError> {
        let waiting = self.busy.fetch_add(1, Ordering::AcqRel);
        let _busy = Busy(&self.busy);
        if waiting > MAX_WAITING {
            return Err(ApiError::too_many(format!(
                "{MAX_WAITING} cells are already waiting for this session: try again later"
            )));
        }
        let mut slot = tokio::select! {
            slot = self.session.lock() => slot,
            () = watcher.closed() => return Err(ApiError::bad("the client has disconnected")),
        };
        let session = slot
            .as_mut()
            .filter(|_| !self.ended.load(Ordering::Acquire));
        let session = session.ok_or_else(|| ApiError::missing("the session"))?;
        if let Some(hidden) = &hidden {
            run_hidden(session.as_mut(), &hidden.before).await?;
        }
        self.asked.store(false, Ordering::Release);
        let count = self.cells.fetch_add(1, Ordering::AcqRel) + 1;
        let observation = {
            let mut running = session.execute_live(code, watcher.clone());
            tokio::select! {
                observation = &mut running => observation,
                () = watcher.closed() => {
                    self.interrupt();
                    running.await
                }
            }?
        };
        let asked = self.asked.load(Ordering::Acquire);
        if let Some(hidden) = &hidden
            && let Err(error) = run_hidden(session.as_mut(), &hidden.after).await
        {
            tracing::debug!("after a cell: {}", error.message);
        }
        Ok(FinishedCell {
            observation,
            count,
            asked,
        })
    }

    /// Starts another interpreter in the same workspace. Waits for the running cell.
    pub(super) async fn sibling(&self) -> Result<Box<dyn Session>, ApiError> {
        let mut slot = self.session.lock().await;
        let session = slot
            .as_mut()
            .ok_or_else(|| ApiError::missing("the session"))?;
        Ok(session.sibling().await?)
    }

    /// Runs code without counting or showing it.
    pub(super) async fn run_hidden(&self, code: &str) -> Result<(), ApiError> {
        let mut slot = self.session.lock().await;
        let session = slot
            .as_mut()
            .ok_or_else(|| ApiError::missing("the session"))?;
        run_hidden(session.as_mut(), code).await
    }

    /// Restarts the interpreter without variables, in the same workspace.
    pub(super) async fn restart(&self) -> Result<(), ApiError> {
        let mut slot = self.take_over().await;
        let session = slot
            .as_mut()
            .ok_or_else(|| ApiError::missing("the session"))?;
        let random_secret = session.sibling().await?;
        *self
            .interrupt
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = random_secret.interrupt_handle();
        self.cells.store(0, Ordering::Release);
        if let Some(old) = slot.replace(random_secret) {
            old.close().await?;
        }
        Ok(())
    }

    /// Ends the interpreter. A running cell is interrupted, and killed if it does not stop.
    pub(super) async fn end(&self) {
        self.ended.store(true, Ordering::Release);
        let session = self.take_over().await.take();
        if let Some(session) = session
            && let Err(error) = session.close().await
        {
            tracing::warn!("closing a session: {error}");
        }
    }

    /// Interrupts the running cell and locks the session when it has ended.
    async fn take_over(&self) -> tokio::sync::MutexGuard<'_, Option<Box<dyn Session>>> {
        let lock = self.session.lock();
        tokio::pin!(lock);
        loop {
            // An interrupt before the start of a cell is lost, so repeat it.
            self.interrupt();
            tokio::select! {
                slot = &mut lock => return slot,
                () = tokio::time::sleep(RETRY_INTERVAL) => {}
            }
        }
    }
}
