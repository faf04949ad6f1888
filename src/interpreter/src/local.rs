//! An [`Interpreter`] over any [`Engine`], and the tiers `jail`, `bwrap` and `unsandboxed`.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use async_trait::async_trait;

use super::bubblewrap::Bubblewrap;
use super::cgroup::Cgroups;
use super::engine::{Engine, HostEnv};
use super::environment::Environment;
use super::server::WarmServers;
use super::session::LocalSession;
use super::session_guard::LAUNCHER;
use super::shared::Shared;
use super::unsandboxed::Unsandboxed;
use super::worker::Worker;
use super::workspace::Storage;
use super::{Interpreter, InterpreterError, Session, SessionSpec};

/// If we are root, sessions run as these users, which no system assigns; the first one runs the warm
/// server.
const USERS: Range<u32> = 2_100_000_000..2_100_004_096;

/// `nobody`: used in containers that do not map [`USERS`].
const NOBODY: u32 = 65_534;

/// Starts sessions of one tier.
pub struct LocalInterpreter(Arc<Shared>);

impl LocalInterpreter {
    /// The `bwrap` tier: each session is a new Python process in bubblewrap.
    ///
    /// # Errors
    /// [`InterpreterError::Unavailable`] when bubblewrap or the Python environment is missing; its text
    /// says what to do.
    pub fn bwrap() -> Result<Self, InterpreterError> {
        Self::with(|host| {
            let engine = Bubblewrap::find(host.environment.clone(), host.worker.clone())?;
            Ok(Box::new(engine))
        })
    }

    /// The `jail` tier: each session is forked from a warm Python server and isolates itself with
    /// namespaces and a seccomp filter (docs/jail.md).
    ///
    /// # Errors
    /// [`InterpreterError::Unavailable`] when the Python environment is missing or this machine refuses
    /// namespaces; its text says what to do.
    pub fn jail() -> Result<Self, InterpreterError> {
        Self::with(|host| Ok(Box::new(WarmServers::start(host)?)))
    }

    /// The `unsandboxed` tier: no isolation at all, for debugging.
    ///
    /// # Errors
    /// [`InterpreterError::Unavailable`] when the Python environment is missing; its text says what to do.
    pub fn unsandboxed() -> Result<Self, InterpreterError> {
        Self::with(|host| {
            let engine = Unsandboxed::new(host.environment.clone(), host.worker.clone());
            Ok(Box::new(engine))
        })
    }

    /// Sessions of an engine, with workspaces in memory if the machine allows it.
    ///
    /// # Errors
    /// [`InterpreterError::Unavailable`] when the Python environment is missing, and any error of
    /// `engine`.
    pub fn with(
        engine: impl FnOnce(&HostEnv) -> Result<Box<dyn Engine>, InterpreterError>,
    ) -> Result<Self, InterpreterError> {
        Self::on(Storage::prepare, engine)
    }

    /// Sessions of an engine, with workspaces in the given storage.
    ///
    /// # Errors
    /// As [`LocalInterpreter::with`].
    pub fn on(
        storage: fn(&Path) -> std::io::Result<Storage>,
        engine: impl FnOnce(&HostEnv) -> Result<Box<dyn Engine>, InterpreterError>,
    ) -> Result<Self, InterpreterError> {
        let environment = Environment::find()?;
        let unavailable =
            |error| InterpreterError::Unavailable(format!("preparing workspaces: {error}"));
        let worker = Worker::start(LAUNCHER).map_err(unavailable)?;
        let cache = environment.cache.clone();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let prepared = worker.run_blocking(move || {
            Ok((
                storage(&cache)?,
                Worker::start_several("session-ends", cores)?,
            ))
        });
        let stopped = || std::io::Error::other("the launcher thread has stopped");
        let (storage, ends) = prepared
            .unwrap_or_else(|| Err(stopped()))
            .map_err(unavailable)?;
        let host = HostEnv {
            environment,
            worker,
            storage,
            users: users(),
        };
        Ok(Self(Arc::new(Shared {
            engine: engine(&host)?,
            environment: host.environment,
            cgroups: Cgroups::detect(),
            storage: host.storage,
            starts: host.worker,
            ends,
            users: host.users,
            next_user: AtomicU32::new(0),
        })))
    }
}

#[async_trait]
impl Interpreter for LocalInterpreter {
    async fn start(&self, spec: SessionSpec) -> Result<Box<dyn Session>, InterpreterError> {
        Ok(Box::new(LocalSession::start(self.0.clone(), spec).await?))
    }

    fn environment(&self) -> &str {
        &self.0.environment.digest
    }

    fn warnings(&self) -> Vec<String> {
        self.0.warnings()
    }
}

/// The users for sessions: [`USERS`] if mapped, otherwise `nobody`; `None` if we are not root, or root of a
/// user namespace that maps no other user.
fn users() -> Option<Range<u32>> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    [USERS, NOBODY..NOBODY + 1]
        .into_iter()
        .find(|users| is_mapped(users, &map))
}

/// Whether one line of a `uid_map` (first inside, first outside, count) maps all of `users`.
fn is_mapped(users: &Range<u32>, map: &str) -> bool {
    map.lines().any(|line| {
        let numbers: Vec<u64> = line
            .split_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect();
        matches!(numbers[..], [from, _, count]
            if from <= u64::from(users.start) && u64::from(users.end) <= from + count)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mapped_users_are_used() {
        let all = "         0          0 4294967295\n";
        let container = "0 100000 65536\n";
        let alone = "0 1000 1\n";
        let nobody = NOBODY..NOBODY + 1;
        assert!(is_mapped(&USERS, all) && is_mapped(&nobody, all));
        assert!(!is_mapped(&USERS, container) && is_mapped(&nobody, container));
        assert!(!is_mapped(&USERS, alone) && !is_mapped(&nobody, alone));
        assert!(!is_mapped(&nobody, "x y z\n"));
    }
}
