//! The session of an edit, and copies of it at the turns where a person wrote, so that another try begins there at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pybench_interpreter::{
    Collected, Interpreter, InterpreterError, InterruptHandle, Session, SessionSpec,
};
use pybench_types::observation::Observation;

/// Maximum number of copies of the session of an edit: before its first turn, and before the last two.
pub(crate) const MAX_COPIES: usize = 3;
/// Maximum time that a copy takes. The cells before it run again in it.
const MAX_COPYING: Duration = Duration::from_secs(30);

/// A cell that ran, and what it gave.
type CellRun = Arc<(String, Observation)>;

/// The session of an edit, and copies of its earlier states.
pub(crate) struct Sessions {
    interpreter: Arc<dyn Interpreter>,
    spec: SessionSpec,
    live: tokio::sync::Mutex<Live>,
    copies: Mutex<Vec<Copied>>,
}

/// The session that runs the cells. It starts with the first one.
#[derive(Default)]
struct Live {
    session: Option<Box<dyn Session>>,
    /// The cells that its state has.
    ran: Vec<CellRun>,
    /// How many of them the conversation has asked for. It asks for all of them when it begins with a copy.
    asked: usize,
    /// Whether it cannot be copied.
    is_single: bool,
}

/// A copy of the session.
struct Copied {
    /// Number of turns of the edit before it.
    turns: usize,
    ran: Vec<CellRun>,
    session: Box<dyn Session>,
    since: Instant,
}

impl Sessions {
    pub(crate) fn new(interpreter: Arc<dyn Interpreter>, spec: SessionSpec) -> Self {
        Self {
            interpreter,
            spec,
            live: tokio::sync::Mutex::default(),
            copies: Mutex::default(),
        }
    }

    /// Ends the session and begins with the copy that has most of the first `turns` turns, or with a new session.
    pub(crate) async fn begin(&self, turns: usize) {
        let live = match self.take(turns) {
            Some(copied) => Live {
                session: Some(copied.session),
                ran: copied.ran,
                ..Live::default()
            },
            None => Live::default(),
        };
        let ended = std::mem::replace(&mut *self.live.lock().await, live);
        end(ended.session).await;
    }

    /// The last copy within the first `turns` turns. Later ones are of no use any more; dropping them ends them.
    fn take(&self, turns: usize) -> Option<Copied> {
        let mut copies = self.copies();
        copies.retain(|copied| copied.turns <= turns && !self.is_idle(copied));
        copies.pop()
    }

    /// Whether the interpreter of a copy may have been ended, because it ran no cell for the time that the limits allow.
    fn is_idle(&self, copied: &Copied) -> bool {
        let seconds = self.spec.limits.idle_seconds;
        seconds.is_some_and(|seconds| copied.since.elapsed() >= Duration::from_secs(seconds))
    }

    /// Copies the session, which has run the first `turns` turns. Where that is impossible, another try from there runs them
    /// again.
    pub(crate) async fn copy(&self, turns: usize) {
        if self.copied().contains(&turns) {
            return;
        }
        let mut live = self.live.lock().await;
        let live = &mut *live;
        let Some(session) = live.session.as_mut().filter(|_| !live.is_single) else {
            return;
        };
        if live.asked < live.ran.len() {
            return;
        }
        let since = Instant::now();
        match tokio::time::timeout(MAX_COPYING, session.fork()).await {
            Ok(Ok(session)) => self.keep(Copied {
                turns,
                ran: live.ran.clone(),
                session,
                since,
            }),
            Ok(Err(error)) => {
                tracing::debug!("the session of an edit is not copied: {error}");
                live.is_single = true;
            }
            Err(_) => {
                tracing::debug!("the session of an edit is not copied: its cells take too long");
                live.is_single = true;
            }
        }
    }

    fn keep(&self, copied: Copied) {
        let mut copies = self.copies();
        copies.push(copied);
        // The first one stays, since most tries begin there.
        if copies.len() > MAX_COPIES {
            copies.remove(1);
        }
    }

    /// The numbers of turns after which there are copies.
    pub(crate) fn copied(&self) -> Vec<usize> {
        self.copies().iter().map(|copied| copied.turns).collect()
    }

    /// Ends the session and its copies.
    pub(crate) async fn close(&self) {
        let copies = std::mem::take(&mut *self.copies());
        for copied in copies {
            end(Some(copied.session)).await;
        }
        self.end_live().await;
    }

    /// Ends the session; its copies stay.
    pub(crate) async fn end_live(&self) {
        let ended = std::mem::take(&mut *self.live.lock().await);
        end(ended.session).await;
    }

    /// Runs a cell, unless the state has it.
    async fn execute(&self, code: &str) -> Result<Observation, InterpreterError> {
        let mut live = self.live.lock().await;
        let live = &mut *live;
        if let Some(run) = live.ran.get(live.asked) {
            let (known, observation) = &**run;
            if known != code {
                let why = "a copy has run another cell than the one that was asked for";
                return Err(InterpreterError::Fork(why.to_owned()));
            }
            live.asked += 1;
            return Ok(observation.clone());
        }
        let session = match live.session.take() {
            Some(session) => session,
            None => self.interpreter.start(self.spec.clone()).await?,
        };
        let observation = live.session.insert(session).execute(code).await?;
        let run = (code.to_owned(), observation.clone());
        live.ran.push(Arc::new(run));
        live.asked = live.ran.len();
        Ok(observation)
    }

    fn copies(&self) -> MutexGuard<'_, Vec<Copied>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn end(session: Option<Box<dyn Session>>) {
    if let Some(session) = session
        && let Err(error) = session.close().await
    {
        tracing::warn!("cannot close the session of an edit: {error}");
    }
}

/// The session as the conversation uses it.
pub(crate) struct LiveSession(pub(crate) Arc<Sessions>);

#[async_trait]
impl Session for LiveSession {
    async fn execute(&mut self, code: &str) -> Result<Observation, InterpreterError> {
        self.0.execute(code).await
    }

    /// A cell of an edit ends with the edit, and is not interrupted alone.
    fn interrupt_handle(&self) -> InterruptHandle {
        InterruptHandle::new().0
    }

    async fn read_outputs(&mut self) -> Result<Collected, InterpreterError> {
        match &mut self.0.live.lock().await.session {
            Some(session) => session.read_outputs().await,
            None => Ok(Collected::default()),
        }
    }

    async fn close(self: Box<Self>) -> Result<(), InterpreterError> {
        self.0.close().await;
        Ok(())
    }
}
