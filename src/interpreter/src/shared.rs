//! What all sessions of a tier on this machine share.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::cgroup::{Cgroups, Group};
use super::engine::{EnforcedLimits, Engine, LaunchSpec};
use super::environment::Environment;
use super::sandbox::Sandbox;
use super::worker::Worker;
use super::workspace::{Storage, Workspace};
use super::{InterpreterError, Limits, SessionSpec};
use crate::Tier;

/// State that all sessions of an interpreter share.
pub(super) struct Shared {
    pub(super) engine: Box<dyn Engine>,
    pub(super) environment: Environment,
    pub(super) cgroups: Cgroups,
    pub(super) storage: Storage,
    /// The thread that starts sessions.
    pub(super) starts: Worker,
    /// The threads that end sessions, in the same mount namespace.
    pub(super) ends: Worker,
    pub(super) users: Option<Range<u32>>,
    pub(super) next_user: AtomicU32,
}

impl Shared {
    /// Starts the process of a session.
    pub(super) async fn launch(
        &self,
        workspace: Arc<Workspace>,
        spec: SessionSpec,
        user: Option<u32>,
    ) -> Result<Sandbox, InterpreterError> {
        if spec.network.is_some() && !self.engine.supports_allowlist() {
            return Err(InterpreterError::Unavailable(Tier::NO_ALLOWLIST.to_owned()));
        }
        let (cgroups, mut limits) = (self.cgroups.clone(), spec.limits.clone());
        self.engine.add_overhead(&mut limits);
        let own = self.engine.enforced_limits().is_some();
        let create = move || match own {
            true => Ok(Group::default()),
            false => cgroups.create(&limits),
        };
        let failed = |source| InterpreterError::Io {
            context: "creating a control group".to_owned(),
            source,
        };
        let launch_spec = LaunchSpec {
            group: self.starts.run(create).await?.map_err(failed)?,
            workspace,
            spec,
            user,
        };
        self.engine.launch(launch_spec).await
    }

    /// The limits that apply to a whole session.
    fn enforced_limits(&self) -> EnforcedLimits {
        self.engine.enforced_limits().unwrap_or(EnforcedLimits {
            memory: self.cgroups.bounds_memory(),
            processes: self.cgroups.bounds_processes(),
            cpus: self.cgroups.bounds_cpus(),
        })
    }

    /// The user of the next session; `None` if this process cannot switch users.
    pub(super) fn next_user(&self) -> Option<u32> {
        let users = self.users.as_ref()?;
        let number = self.next_user.fetch_add(1, Ordering::Relaxed);
        let others = users.end - users.start - 1;
        Some(match others {
            0 => users.start,
            _ => users.start + 1 + number % others,
        })
    }

    /// Resource limits that each process sets before the first cell. Without control groups they are
    /// the only limits on memory and processes.
    pub(super) fn rlimits(&self, limits: &Limits) -> BTreeMap<&'static str, u64> {
        let mut set = BTreeMap::from([
            ("CORE", 0),
            ("NOFILE", 1024),
            ("FSIZE", limits.file_mib << 20),
        ]);
        let wanted = self.engine.wants_rlimits();
        if wanted || !self.enforced_limits().memory {
            set.insert("AS", limits.memory_mib << 20);
        }
        if wanted || !self.enforced_limits().processes {
            set.insert("NPROC", limits.processes);
        }
        set
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = self.engine.warnings();
        let mut warn = |condition: bool, text| {
            if condition {
                warnings.push(text);
            }
        };
        warn(
            !self.enforced_limits().memory,
            "no writable memory control group: memory is limited per process, not per session",
        );
        warn(
            !self.enforced_limits().processes,
            "no writable pids control group: processes are limited per user, by a resource limit",
        );
        warn(
            !self.enforced_limits().cpus,
            "no writable cpu control group: sessions share the processors without limits",
        );
        warn(
            !self.storage.is_bounded() && !self.engine.is_remote(),
            "workspaces are on disk: their size is measured twice a second, not limited by the kernel",
        );
        warn(
            super::seccomp::program().is_empty(),
            "no system call filter for this processor architecture",
        );
        warnings.into_iter().map(str::to_owned).collect()
    }
}
