//! A stateful, isolated Python interpreter for each trajectory.
//!
//! [`Interpreter`] starts [`Session`]s; every isolation tier implements both traits. Rollout, grading
//! and the code execution service run model-written code through them.

mod bubblewrap;
mod cell_history;
pub mod cgroup;
pub mod child;
mod choice;
mod collect;
mod dirs;
pub mod engine;
pub mod environment;
mod event;
mod files;
mod frame_budget;
mod late;
mod limits;
mod live;
pub mod local;
mod make_environment;
pub mod mount_spec;
pub mod network;
mod normalize;
mod observe;
mod paced;
mod protocol;
mod replay;
pub mod sandbox;
pub mod seccomp;
mod server;
mod session;
pub mod session_guard;
mod shared;
mod unsandboxed;
pub mod worker;
pub mod workspace;
mod workspace_sync;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use pybench_types::observation::Observation;

pub use choice::{InterpreterChoice, Tier};
pub use dirs::default_cache_dir;
pub use environment::{recorder, requirements};
pub use files::{EntryKind, FileEntry, FileError, Files, Upload};
pub use late::LateSession;
pub use limits::Limits;
pub use live::Watcher;
pub use local::LocalInterpreter;
pub use make_environment::make_environment;
pub use network::Network;
pub use normalize::normalize;
pub use paced::PacedInterpreter;

/// Parameters of a new session.
#[derive(Clone, Debug, Default)]
pub struct SessionSpec {
    /// Read-only input files: path relative to the workspace (`data/cars.csv`) → host file.
    pub inputs: BTreeMap<String, PathBuf>,
    /// Seed of Python's `random` and of numpy.
    pub seed: u64,
    /// Whether `os.urandom`, `secrets` and `uuid` get the system's randomness. Otherwise they follow from the
    /// seed as well, so that a replay is equal, and the seed reveals their values.
    pub system_randomness: bool,
    /// Resource limits.
    pub limits: Limits,
    /// A local folder of wheels that `pip install` uses. Without one, and without a network, `pip`
    /// prints an explanation and fails.
    pub wheelhouse: Option<PathBuf>,
    /// Hosts that cells may connect to; `None`: no network.
    pub network: Option<Network>,
}

/// A failure of the infrastructure; errors in a cell are part of its [`Observation`].
#[derive(Debug, thiserror::Error)]
pub enum InterpreterError {
    /// A program or the Python environment is missing; the text says what to install.
    #[error("the interpreter cannot run here: {0}")]
    Unavailable(String),
    #[error("a session could not be started: {0}")]
    Start(String),
    /// A session could not be forked; the original is unchanged.
    #[error("the session cannot be forked: {0}")]
    Fork(String),
    /// This process was suspended or hung for longer than its sessions may live then ([`session_guard`]).
    #[error("this process was silent for too long, and its sessions were ended")]
    Silent,
    /// The session's process sent an invalid message.
    #[error("the session sent an invalid message: {0}")]
    Protocol(String),
    /// Reading or writing on the host failed.
    #[error("{context}: {source}")]
    Io {
        /// The operation that failed.
        context: String,
        source: std::io::Error,
    },
}

/// A file collected from a session's `./output`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedFile {
    /// Path relative to the workspace, `output/…`.
    pub path: String,
    pub bytes: Vec<u8>,
}

/// The files collected from `./output`, and those that were skipped (links, devices, over a limit).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Regular files, sorted by path.
    pub files: Vec<CollectedFile>,
    /// Skipped files as `path: reason`.
    pub refused: Vec<String>,
}

/// Starts sessions of one isolation tier in one Python environment.
#[async_trait]
pub trait Interpreter: Send + Sync {
    /// Starts a session. Its workspace contains `./data` (read-only) and an empty `./output`.
    async fn start(&self, spec: SessionSpec) -> Result<Box<dyn Session>, InterpreterError>;

    /// Digest of the Python environment: interpreter version, locked requirements, runner.
    fn environment(&self) -> &str;

    /// Limits that this machine cannot enforce and other weaknesses, one sentence each.
    fn warnings(&self) -> Vec<String>;
}

/// One running interpreter. Variables and files persist from cell to cell.
#[async_trait]
pub trait Session: Send {
    /// Runs a cell until it ends, times out, or its process dies. Only infrastructure failures are errors.
    async fn execute(&mut self, code: &str) -> Result<Observation, InterpreterError>;

    /// Runs a cell and sends each output to `watcher` when it appears. Tiers without live output send
    /// all of them at the end.
    async fn execute_live(
        &mut self,
        code: &str,
        watcher: Watcher,
    ) -> Result<Observation, InterpreterError> {
        let observation = self.execute(code).await?;
        observation
            .outputs
            .iter()
            .for_each(|output| watcher.send(output.clone()));
        Ok(observation)
    }

    /// Access to the session's workspace from the host, also while a cell runs; `None` if the tier does
    /// not support it.
    fn files(&self) -> Option<Files> {
        None
    }

    /// Starts another interpreter in the same workspace: it has its own variables and shares the files.
    /// The two are not isolated from each other.
    async fn sibling(&mut self) -> Result<Box<dyn Session>, InterpreterError> {
        Err(InterpreterError::Unavailable(
            "sessions of this tier cannot share a workspace".to_owned(),
        ))
    }

    /// A handle that interrupts the running cell from another task.
    fn interrupt_handle(&self) -> InterruptHandle;

    /// Collects `./output`: regular files only, limited in number and size.
    async fn read_outputs(&mut self) -> Result<Collected, InterpreterError>;

    /// Starts a second session with the same variables and a copy of the workspace, by running all previous
    /// cells again.
    ///
    /// # Errors
    /// [`InterpreterError::Fork`] if the state cannot be reproduced: a cell was stopped, a cell gave
    /// another result the second time, or the tier does not support forking.
    async fn fork(&mut self) -> Result<Box<dyn Session>, InterpreterError> {
        Err(InterpreterError::Fork(
            "sessions of this tier do not support it".to_owned(),
        ))
    }

    /// Kills the session's processes and removes its workspace. Dropping the session does the same in
    /// the background.
    async fn close(self: Box<Self>) -> Result<(), InterpreterError>;
}

/// Interrupts the running cell of its session.
#[derive(Clone, Debug)]
pub struct InterruptHandle(tokio::sync::mpsc::Sender<()>);

impl InterruptHandle {
    /// Returns a handle and the receiver that the session listens on.
    pub fn new() -> (Self, tokio::sync::mpsc::Receiver<()>) {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        (Self(sender), receiver)
    }

    /// Requests an interrupt; does nothing if no cell runs.
    pub fn interrupt(&self) {
        // A full channel already carries an interrupt; a closed one has no session left.
        let _ = self.0.try_send(());
    }
}

/// Time between an interrupt and the kill that follows if the cell ignores it.
pub const INTERRUPT_GRACE: Duration = Duration::from_secs(10);

/// The Python interpreter of the sessions' environment, for trusted tools outside sessions (tests,
/// benchmarks).
///
/// # Errors
/// [`InterpreterError::Unavailable`] if `pybench setup` has not created it.
pub fn environment_python() -> Result<PathBuf, InterpreterError> {
    Ok(environment::Environment::find()?.root.join("bin/python"))
}
