//! The agent's world: a stateful Python interpreter per trajectory, isolated from everything else.
//!
//! [`Interpreter`] starts [`Session`]s; every tier of isolation implements the pair. Rollout, grading
//! and the code execution service use one and the same trait.

mod bare;
mod branch;
mod bubblewrap;
mod cgroup;
mod child;
mod collect;
mod container;
pub mod doctor;
mod engine;
mod environment;
mod files;
mod live;
mod local;
pub mod network;
mod normalise;
mod observe;
mod protocol;
mod same;
mod sandbox;
mod seccomp;
mod server;
pub mod service;
mod session;
mod view;
mod worker;
mod workspace;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use container::{ClusterSettings, ContainerSettings, EngineSettings};
pub use environment::{recorder, requirements};
pub use files::{Entry, EntryKind, FileError, Files, Upload};
pub use live::Watcher;
pub use local::LocalInterpreter;
pub use network::Network;
pub use normalise::normalise;

use crate::run::{InterpreterChoice, Tier};

/// Bounds of a session. Memory and process counts hold where the machine lets them be enforced;
/// [`Interpreter::warnings`] says what is not bounded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Seconds that one cell may run before it is interrupted.
    #[schemars(range(min = 1, max = 86_400))]
    pub cell_seconds: u64,
    /// Seconds without a cell after which the process is ended; files are kept, and the next cell gets a
    /// new one. `None`: it waits as long as the session is there.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub idle_seconds: Option<u64>,
    /// Memory of all processes of the session together, MiB.
    #[schemars(range(min = 1, max = 4_194_304))]
    pub memory_mib: u64,
    /// Processes and threads.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub processes: u64,
    /// Largest single file, MiB.
    #[schemars(range(min = 1, max = 4_194_304))]
    pub file_mib: u64,
    /// Characters of text output kept per cell, head and tail.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub output_chars: usize,
    /// Files collected from `./output`.
    #[schemars(range(min = 1, max = 100_000))]
    pub output_files: usize,
    /// Bytes collected from `./output`, MiB.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub output_mib: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cell_seconds: 60,
            idle_seconds: None,
            memory_mib: 2048,
            processes: 128,
            file_mib: 256,
            output_chars: 8000,
            output_files: 64,
            output_mib: 64,
        }
    }
}

/// What a session starts with.
#[derive(Clone, Debug, Default)]
pub struct SessionSpec {
    /// Files the session sees, read-only: path relative to the workspace (`data/cars.csv`) → host file.
    pub inputs: BTreeMap<String, PathBuf>,
    /// Seed of `random` and numpy.
    pub seed: u64,
    /// Bounds.
    pub limits: Limits,
    /// A local folder of wheels from which `pip install` works; without one, and without a network, it
    /// explains itself and refuses.
    pub wheelhouse: Option<PathBuf>,
    /// Hosts that cells may reach; `None`: no network.
    pub network: Option<Network>,
}

/// What one cell did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// In the order in which they appeared; neighbouring pieces of one stream are joined.
    pub outputs: Vec<Output>,
    /// The exception, if the cell raised one.
    pub error: Option<CellError>,
    /// Why the cell did not run to its end.
    #[serde(default)]
    pub stopped: Option<Stopped>,
}

/// One output of a cell, in Jupyter's terms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "output", rename_all = "snake_case", deny_unknown_fields)]
pub enum Output {
    /// Text on a stream.
    Stream {
        /// `stdout` or `stderr`.
        name: String,
        /// The text; where it was cut, a notice stands in the middle.
        text: String,
    },
    /// The value of the last expression: MIME type → content (base64 for binary types).
    Result {
        /// MIME bundle.
        data: BTreeMap<String, String>,
    },
    /// Something displayed: MIME type → content (base64 for binary types).
    Display {
        /// MIME bundle.
        data: BTreeMap<String, String>,
    },
    /// What a figure shows, recorded when it was saved or displayed. A claim of the sandboxed process.
    Chart {
        /// The file it was saved to, relative to the workspace; `None` when displayed.
        path: Option<String>,
        /// The record, see `charts.py`.
        figure: serde_json::Value,
    },
}

/// An exception raised by a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CellError {
    /// Class name.
    pub ename: String,
    /// Message.
    pub evalue: String,
    /// As IPython prints it, without colours.
    pub traceback: String,
}

/// Why a cell did not run to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// Time-out; interrupted, the session lives on with its variables.
    Interrupted,
    /// Time-out, and it ignored the interrupt; the session was killed and started anew, empty.
    Restarted,
    /// The process died (out of memory, `os._exit`, a crash); the session was started anew, empty.
    Died,
}

/// A failure of ours, never of the model.
#[derive(Debug, thiserror::Error)]
pub enum InterpreterError {
    /// A tool or the environment is missing; the text says what to install.
    #[error("the interpreter cannot run here: {0}")]
    Unavailable(String),
    /// A session could not be started.
    #[error("a session could not be started: {0}")]
    Start(String),
    /// A session could not be forked; it goes on as before.
    #[error("the session cannot be forked: {0}")]
    Fork(String),
    /// The session's process broke the protocol.
    #[error("the session broke the protocol: {0}")]
    Protocol(String),
    /// Reading or writing on the host failed.
    #[error("{context}: {source}")]
    Io {
        /// What was tried.
        context: String,
        /// The system's word.
        source: std::io::Error,
    },
}

/// A file collected from a session's `./output`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedFile {
    /// Relative to the workspace, `output/…`.
    pub path: String,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// What collecting found: the files, and what was left behind with the reason (links, devices, over
/// a limit).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Regular files, sorted by path.
    pub files: Vec<CollectedFile>,
    /// `path: reason`.
    pub refused: Vec<String>,
}

/// Starts sessions of one tier of isolation in one environment.
#[async_trait]
pub trait Interpreter: Send + Sync {
    /// Start a session. Its workspace holds `./data` (read-only) and an empty `./output`.
    async fn start(&self, spec: SessionSpec) -> Result<Box<dyn Session>, InterpreterError>;

    /// Digest of the Python environment: interpreter version, locked requirements, runner.
    fn environment(&self) -> &str;

    /// What is not enforced or missing on this machine, in words; empty is good.
    fn warnings(&self) -> Vec<String>;
}

/// One live interpreter.
#[async_trait]
pub trait Session: Send {
    /// Run a cell to its end, its time-out, or its death. Infrastructure failures alone are errors.
    async fn execute(&mut self, code: &str) -> Result<Observation, InterpreterError>;

    /// As [`Session::execute`], telling `watcher` of each output when it appears. A tier that cannot
    /// tells of all of them at the end.
    async fn execute_live(
        &mut self,
        code: &str,
        watcher: Watcher,
    ) -> Result<Observation, InterpreterError> {
        let observation = self.execute(code).await?;
        observation
            .outputs
            .iter()
            .for_each(|output| watcher.tell(output.clone()));
        Ok(observation)
    }

    /// The session's workspace as its host reaches it, also while a cell runs; `None` where the tier
    /// has no way to it.
    fn files(&self) -> Option<Files> {
        None
    }

    /// Another interpreter in the same workspace: variables of its own, files in common. The two are
    /// one trust domain.
    async fn sibling(&mut self) -> Result<Box<dyn Session>, InterpreterError> {
        Err(InterpreterError::Unavailable(
            "sessions of this tier cannot share a workspace".to_owned(),
        ))
    }

    /// A handle that interrupts the running cell from elsewhere.
    fn interrupt_handle(&self) -> InterruptHandle;

    /// Collect `./output` by the host: regular files only, no links, bounded in count and size.
    async fn read_outputs(&mut self) -> Result<Collected, InterpreterError>;

    /// A second session with the same variables and a copy of the workspace. It costs the time of the
    /// cells run so far where they have to be run again ([`ForkKind::Replay`]).
    ///
    /// # Errors
    /// [`InterpreterError::Fork`] where the state cannot be had twice: a cell was stopped, did something
    /// else the second time, or this kind of session cannot do it.
    async fn fork(&mut self) -> Result<(Box<dyn Session>, ForkKind), InterpreterError> {
        Err(InterpreterError::Fork(
            "sessions of this tier have no way to".to_owned(),
        ))
    }

    /// Kill everything of the session and remove its workspace. Dropping does the same, later.
    async fn close(self: Box<Self>) -> Result<(), InterpreterError>;
}

/// How a session was forked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkKind {
    /// The process was: everything is equal, whatever the cells did.
    Process,
    /// The cells were run again in a new session, and everything observed was equal.
    Replay,
}

/// Interrupts the running cell of the session it came from.
#[derive(Clone, Debug)]
pub struct InterruptHandle(tokio::sync::mpsc::Sender<()>);

impl InterruptHandle {
    /// A handle and the receiver that the session listens on.
    pub fn new() -> (Self, tokio::sync::mpsc::Receiver<()>) {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        (Self(sender), receiver)
    }

    /// Ask for an interrupt; a no-op when nothing runs.
    pub fn interrupt(&self) {
        // A full channel already carries an interrupt; a closed one has no session left.
        let _ = self.0.try_send(());
    }
}

/// Grace between an interrupt and the kill that follows when it is ignored.
pub const INTERRUPT_GRACE: Duration = Duration::from_secs(5);

/// The interpreter that a recipe asks for. Where the machine refuses jails of our own, bubblewrap makes
/// them, and a warning says so.
///
/// # Errors
/// [`InterpreterError::Unavailable`] when that tier cannot run here; its text says what to do.
pub fn interpreter(choice: &InterpreterChoice) -> Result<Arc<dyn Interpreter>, InterpreterError> {
    match (choice.tier, of_tier(choice.tier)) {
        (Tier::Jail, Err(error)) => instead(&error),
        (_, made) => made,
    }
}

/// An interpreter of that tier and no other.
///
/// # Errors
/// [`InterpreterError::Unavailable`] when that tier cannot run here; its text says what to do.
pub fn of_tier(tier: Tier) -> Result<Arc<dyn Interpreter>, InterpreterError> {
    Ok(match tier {
        Tier::None => Arc::new(LocalInterpreter::none()?),
        Tier::Jail => Arc::new(LocalInterpreter::jail()?),
        Tier::Bwrap => Arc::new(LocalInterpreter::bwrap()?),
        Tier::Gvisor => Arc::new(LocalInterpreter::gvisor()?),
        Tier::Docker => Arc::new(LocalInterpreter::docker(
            &ContainerSettings::load()?.docker,
        )?),
        Tier::Podman => Arc::new(LocalInterpreter::podman(
            &ContainerSettings::load()?.podman,
        )?),
        Tier::Kubernetes => {
            let settings = ContainerSettings::load()?.kubernetes;
            Arc::new(LocalInterpreter::kubernetes(&settings)?)
        }
    })
}

/// bubblewrap in place of jails; if it is not there either, the first reason is the one to tell.
fn instead(error: &InterpreterError) -> Result<Arc<dyn Interpreter>, InterpreterError> {
    match of_tier(Tier::Bwrap) {
        Ok(interpreter) => {
            tracing::warn!("{error}; bubblewrap is used instead, which starts sessions later");
            Ok(interpreter)
        }
        Err(second) => Err(InterpreterError::Unavailable(format!("{error}; {second}"))),
    }
}

/// The Python of the sessions' environment, for trusted tools that run beside sessions (tests, benchmarks).
///
/// # Errors
/// [`InterpreterError::Unavailable`] when `pipelines/setup` has not made it.
pub fn environment_python() -> Result<PathBuf, InterpreterError> {
    Ok(environment::Environment::find()?.root.join("bin/python"))
}
