//! The tiers that run on this machine, `jail`, `bwrap` and `none`: one kind of session over three
//! engines.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;

use super::bare::Bare;
use super::bubblewrap::Bubblewrap;
use super::cgroup::{Cgroups, Group};
use super::container::docker::{Docker, Kind};
use super::container::gvisor::Gvisor;
use super::container::kubernetes::Kubernetes;
use super::container::{ClusterSettings, EngineSettings};
use super::engine::{Bounds, Engine, Order};
use super::environment::Environment;
use super::sandbox::Sandbox;
use super::server::Servers;
use super::session::LocalSession;
use super::worker::Worker;
use super::workspace::{Storage, Workspace};
use super::{Interpreter, InterpreterError, Limits, Session, SessionSpec};
use crate::run::Tier;

/// Sessions started by root run as one of these users, which no system gives to anybody; the first is
/// the warm server's.
const USERS: Range<u32> = 2_100_000_000..2_100_004_096;

/// `nobody`, where a container knows fewer users.
const NOBODY: u32 = 65_534;

/// Starts sessions on this machine.
pub struct LocalInterpreter(Arc<Shared>);

/// What all sessions of an interpreter share.
pub(super) struct Shared {
    pub(super) engine: Box<dyn Engine>,
    environment: Environment,
    cgroups: Cgroups,
    pub(super) storage: Storage,
    /// Starts sessions.
    pub(super) starts: Worker,
    /// Ends them, in the same mount namespace.
    pub(super) ends: Worker,
    users: Option<Range<u32>>,
    next_user: AtomicU32,
}

/// What an engine is made from.
pub(super) struct Ground {
    pub(super) environment: Environment,
    /// The thread that starts processes.
    pub(super) worker: Worker,
    pub(super) storage: Storage,
    /// Host users for sessions; `None` where we cannot become another.
    pub(super) users: Option<Range<u32>>,
}

impl LocalInterpreter {
    /// The `bwrap` tier: each session is a process of its own in bubblewrap.
    ///
    /// # Errors
    /// [`InterpreterError::Unavailable`] when bubblewrap or the Python environment is missing; its text
    /// says what to do.
    pub fn bwrap() -> Result<Self, InterpreterError> {
        Self::with(|ground| {
            let engine = Bubblewrap::find(ground.environment.clone(), ground.worker.clone())?;
            Ok(Box::new(engine))
        })
    }

    /// The `gvisor` tier: each session has a kernel of its own, in user space.
    ///
    /// # Errors
    /// [`InterpreterError::Unavailable`] when `runsc` or the Python environment is missing; its text says
    /// what to do.
    pub fn gvisor() -> Result<Self, InterpreterError> {
        Self::with(|ground| {
            let engine = Gvisor::find(ground.environment.clone(), ground.worker.clone())?;
            Ok(Box::new(engine))
        })
    }

    /// The `jail` tier: each session is a fork of a warm server, which jails itself.
    ///
    /// # Errors
    /// [`InterpreterError::Unavailable`] when the Python environment is missing or this machine refuses
    /// namespaces; its text says what to do.
    pub fn jail() -> Result<Self, InterpreterError> {
        Self::with(|ground| Ok(Box::new(Servers::start(ground)?)))
    }

    /// The `none` tier: no isolation at all, for debugging.
    ///
    /// # Errors
    /// [`InterpreterError::Unavailable`] when the Python environment is missing; its text says what to do.
    pub fn none() -> Result<Self, InterpreterError> {
        Self::with(|ground| {
            let engine = Bare::new(ground.environment.clone(), ground.worker.clone());
            Ok(Box::new(engine))
        })
    }

    /// The `docker` tier: each session is a container.
    ///
    /// # Errors
    /// [`InterpreterError::Unavailable`] when docker, its daemon, an image or the Python environment is
    /// missing; its text says what to do.
    pub fn docker(settings: &EngineSettings) -> Result<Self, InterpreterError> {
        Self::on(Storage::on_disk, |ground| {
            Ok(Box::new(Docker::find(Kind::Docker, settings, ground)?))
        })
    }

    /// The `podman` tier: each session is a container.
    ///
    /// # Errors
    /// [`InterpreterError::Unavailable`] when podman, an image or the Python environment is missing; its
    /// text says what to do.
    pub fn podman(settings: &EngineSettings) -> Result<Self, InterpreterError> {
        Self::with(|ground| Ok(Box::new(Docker::find(Kind::Podman, settings, ground)?)))
    }

    /// The `kubernetes` tier: each session is a pod.
    ///
    /// # Errors
    /// [`InterpreterError::Unavailable`] when kubectl, the cluster, a permission, the name of an image or the
    /// Python environment is missing; its text says what to do.
    pub fn kubernetes(settings: &ClusterSettings) -> Result<Self, InterpreterError> {
        Self::on(Storage::on_disk, |ground| {
            Ok(Box::new(Kubernetes::find(settings, ground)?))
        })
    }

    fn with(
        engine: impl FnOnce(&Ground) -> Result<Box<dyn Engine>, InterpreterError>,
    ) -> Result<Self, InterpreterError> {
        Self::on(Storage::prepare, engine)
    }

    /// With workspaces that lie where `storage` says.
    fn on(
        storage: fn(&Path) -> std::io::Result<Storage>,
        engine: impl FnOnce(&Ground) -> Result<Box<dyn Engine>, InterpreterError>,
    ) -> Result<Self, InterpreterError> {
        let environment = Environment::find()?;
        let unavailable =
            |error| InterpreterError::Unavailable(format!("preparing workspaces: {error}"));
        let worker = Worker::start("sessions").map_err(unavailable)?;
        let cache = environment.cache.clone();
        let prepared =
            worker.run_blocking(move || Ok((storage(&cache)?, Worker::start("session-ends")?)));
        let gone = || std::io::Error::other("the launcher has ended");
        let (storage, ends) = prepared
            .unwrap_or_else(|| Err(gone()))
            .map_err(unavailable)?;
        let ground = Ground {
            environment,
            worker,
            storage,
            users: users(),
        };
        Ok(Self(Arc::new(Shared {
            engine: engine(&ground)?,
            environment: ground.environment,
            cgroups: Cgroups::detect(),
            storage: ground.storage,
            starts: ground.worker,
            ends,
            users: ground.users,
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

impl Shared {
    /// Start the process of a session.
    pub(super) async fn launch(
        &self,
        workspace: Arc<Workspace>,
        spec: SessionSpec,
        user: Option<u32>,
    ) -> Result<Sandbox, InterpreterError> {
        if spec.network.is_some() && !self.engine.holds_to_hosts() {
            return Err(InterpreterError::Unavailable(Tier::NO_HOSTS.to_owned()));
        }
        let (cgroups, mut limits) = (self.cgroups.clone(), spec.limits.clone());
        self.engine.allow_for_itself(&mut limits);
        let own = self.engine.bounds().is_some();
        let create = move || match own {
            true => Ok(Group::default()),
            false => cgroups.create(&limits),
        };
        let failed = |source| InterpreterError::Io {
            context: "making a control group".to_owned(),
            source,
        };
        let order = Order {
            group: self.starts.run(create).await?.map_err(failed)?,
            workspace,
            spec,
            user,
        };
        self.engine.launch(order).await
    }

    /// What bounds a whole session, rather than each of its processes.
    fn bounds(&self) -> Bounds {
        self.engine.bounds().unwrap_or(Bounds {
            memory: self.cgroups.bounds_memory(),
            processes: self.cgroups.bounds_processes(),
        })
    }

    /// The user of the next session; `None` where we cannot change it, being none ourselves.
    pub(super) fn next_user(&self) -> Option<u32> {
        let users = self.users.as_ref()?;
        let number = self.next_user.fetch_add(1, Ordering::Relaxed);
        let others = users.end - users.start - 1;
        Some(match others {
            0 => users.start,
            _ => users.start + 1 + number % others,
        })
    }

    /// Limits that each process sets itself before the first cell. Where there are no control groups
    /// they are all that bounds memory and processes.
    pub(super) fn rlimits(&self, limits: &Limits) -> BTreeMap<&'static str, u64> {
        let mut set = BTreeMap::from([
            ("CORE", 0),
            ("NOFILE", 1024),
            ("FSIZE", limits.file_mib << 20),
        ]);
        let wanted = self.engine.wants_rlimits();
        if wanted || !self.bounds().memory {
            set.insert("AS", limits.memory_mib << 20);
        }
        if wanted || !self.bounds().processes {
            set.insert("NPROC", limits.processes);
        }
        set
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = self.engine.warnings();
        let mut warn = |condition: bool, text| {
            if condition {
                warnings.push(text);
            }
        };
        warn(
            !self.bounds().memory,
            "no writable memory control group: memory is bounded per process, not per session",
        );
        warn(
            !self.bounds().processes,
            "no pids control group: processes are bounded per user, by a resource limit",
        );
        warn(
            !self.storage.is_bounded() && !self.engine.is_remote(),
            "workspaces lie on disk: their size is measured twice a second, not bounded by the kernel",
        );
        warn(
            super::seccomp::program().is_empty(),
            "no system call filter for this processor",
        );
        warnings.into_iter().map(str::to_owned).collect()
    }
}

/// The users for sessions: the range where it is mapped, otherwise `nobody`; `None` where we are not root
/// or root of a namespace that knows nobody else.
fn users() -> Option<Range<u32>> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    [USERS, NOBODY..NOBODY + 1]
        .into_iter()
        .find(|users| is_mapped(users, &map))
}

/// Whether one line of a `uid_map` (first, first outside, count) holds them all.
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
    fn users_are_taken_where_they_are_mapped() {
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
