//! The `bwrap` tier: each session is a process of its own in bubblewrap.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;

use super::cgroup::Cgroups;
use super::environment::Environment;
use super::jail::{Jail, Plan, Template};
use super::session::BwrapSession;
use super::worker::Worker;
use super::workspace::{Storage, Workspace};
use super::{Interpreter, InterpreterError, Limits, Session, SessionSpec};

/// Sessions started by root run as one of these users, which no system gives to anybody.
const USERS: std::ops::Range<u32> = 2_100_000_000..2_100_004_096;

/// `nobody`, where a container knows fewer users.
const NOBODY: u32 = 65_534;

/// Starts sessions in bubblewrap.
pub struct BwrapInterpreter(Arc<Shared>);

/// What all sessions of an interpreter share.
pub(super) struct Shared {
    template: Template,
    cgroups: Cgroups,
    pub(super) storage: Storage,
    /// Starts sessions.
    pub(super) starts: Worker,
    /// Ends them, in the same mount namespace.
    pub(super) ends: Worker,
    users: Option<std::ops::Range<u32>>,
    next_user: AtomicU32,
}

impl BwrapInterpreter {
    /// Look for all that sessions need.
    ///
    /// # Errors
    /// [`InterpreterError::Unavailable`] when bubblewrap or the Python environment is missing; its text
    /// says what to do.
    pub fn new() -> Result<Self, InterpreterError> {
        let bwrap = find_bwrap()?;
        let version = version(&bwrap)?;
        let environment = Environment::find()?;
        let unavailable =
            |error| InterpreterError::Unavailable(format!("preparing workspaces: {error}"));
        let starts = Worker::start("sessions").map_err(unavailable)?;
        let cache = environment.cache.clone();
        let prepared = starts
            .run_blocking(move || Ok((Storage::prepare(&cache)?, Worker::start("session-ends")?)));
        let gone = || std::io::Error::other("the launcher has ended");
        let (storage, ends) = prepared
            .unwrap_or_else(|| Err(gone()))
            .map_err(unavailable)?;
        Ok(Self(Arc::new(Shared {
            template: Template {
                bwrap,
                disable_userns: version >= (0, 8),
                environment,
            },
            cgroups: Cgroups::detect(),
            storage,
            starts,
            ends,
            users: rustix::process::geteuid().is_root().then(users),
            next_user: AtomicU32::new(0),
        })))
    }
}

#[async_trait]
impl Interpreter for BwrapInterpreter {
    async fn start(&self, spec: SessionSpec) -> Result<Box<dyn Session>, InterpreterError> {
        Ok(Box::new(BwrapSession::start(self.0.clone(), spec).await?))
    }

    fn environment(&self) -> &str {
        &self.0.template.environment.digest
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }
}

impl Shared {
    /// Start the process of a session. Blocks; must run on `starts`.
    pub(super) fn launch(
        &self,
        workspace: &Workspace,
        spec: &SessionSpec,
        user: Option<u32>,
    ) -> Result<Jail, InterpreterError> {
        let group = self
            .cgroups
            .create(&spec.limits)
            .map_err(|source| InterpreterError::Io {
                context: "making a control group".to_owned(),
                source,
            })?;
        let plan = Plan {
            template: &self.template,
            workspace,
            limits: &spec.limits,
            wheelhouse: spec.wheelhouse.as_deref(),
            user,
        };
        plan.launch(group)
    }

    /// The user of the next session; `None` where we cannot change it, being none ourselves.
    pub(super) fn next_user(&self) -> Option<u32> {
        let users = self.users.as_ref()?;
        let number = self.next_user.fetch_add(1, Ordering::Relaxed);
        Some(users.start + number % (users.end - users.start))
    }

    /// Limits that each process sets itself before the first cell. Where there are no control groups
    /// they are all that bounds memory and processes.
    pub(super) fn rlimits(&self, limits: &Limits) -> BTreeMap<&'static str, u64> {
        let mut set = BTreeMap::from([
            ("CORE", 0),
            ("NOFILE", 1024),
            ("FSIZE", limits.file_mib << 20),
        ]);
        if !self.cgroups.bounds_memory() {
            set.insert("AS", limits.memory_mib << 20);
        }
        if !self.cgroups.bounds_processes() {
            set.insert("NPROC", limits.processes);
        }
        set
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |condition: bool, text: &str| {
            if condition {
                warnings.push(text.to_owned());
            }
        };
        warn(
            !self.cgroups.bounds_memory(),
            "no writable memory control group: memory is bounded per process, not per session",
        );
        warn(
            !self.cgroups.bounds_processes(),
            "no writable pids control group: processes are bounded per user, by a resource limit",
        );
        warn(
            !self.storage.is_bounded(),
            "workspaces lie on disk: their size is measured twice a second, not bounded by the kernel",
        );
        warn(
            !self.template.disable_userns,
            "this bubblewrap is older than 0.8: further user namespaces are refused by the filter alone",
        );
        warn(
            super::seccomp::program().is_empty(),
            "no system call filter for this processor",
        );
        warnings
    }
}

/// The users for sessions: the range where it is mapped, otherwise `nobody`.
fn users() -> std::ops::Range<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let mapped = map.lines().any(|line| {
        let numbers: Vec<u64> = line
            .split_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect();
        matches!(numbers[..], [from, _, count]
            if from <= u64::from(USERS.start) && u64::from(USERS.end) <= from + count)
    });
    if mapped { USERS } else { NOBODY..NOBODY + 1 }
}

fn find_bwrap() -> Result<PathBuf, InterpreterError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("bwrap"))
        .find(|path| path.is_file());
    found.ok_or_else(|| {
        let text = "bubblewrap is missing. Install it with: apt-get install bubblewrap";
        InterpreterError::Unavailable(text.to_owned())
    })
}

/// Major and minor version: `bubblewrap 0.8.0`.
fn version(bwrap: &PathBuf) -> Result<(u32, u32), InterpreterError> {
    let output = Command::new(bwrap).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text
        .map_err(|error| InterpreterError::Unavailable(format!("{}: {error}", bwrap.display())))?;
    let number = text.split_whitespace().last().unwrap_or_default();
    let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
    Ok((parts.next().unwrap_or(0), parts.next().unwrap_or(0)))
}
