//! The interface that each isolation tier implements: how a sandbox is created and what it can limit.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;

use super::cgroup::Group;
use super::environment::Environment;
use super::sandbox::Sandbox;
use super::worker::Worker;
use super::workspace::{Storage, Workspace};
use super::{Collected, InterpreterError, Limits, SessionSpec};

/// Everything needed to start one sandbox.
#[derive(Debug)]
pub struct LaunchSpec {
    pub workspace: Arc<Workspace>,
    pub spec: SessionSpec,
    /// Host user to switch to; `None` if this process is unprivileged already.
    pub user: Option<u32>,
    pub group: Group,
}

impl LaunchSpec {
    /// Size limit of each temporary folder (`/tmp`, `/dev/shm`), bytes.
    pub fn tmpfs_bytes(&self) -> u64 {
        (self.spec.limits.memory_mib / 2).max(16) << 20
    }
}

/// Limits that apply to a whole session rather than to each of its processes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EnforcedLimits {
    pub memory: bool,
    pub processes: bool,
    pub cpus: bool,
}

/// Creates sandboxes in which the runner waits for the `init` request.
#[async_trait]
pub trait Engine: Send + Sync {
    /// Starts a sandbox.
    async fn launch(&self, launch_spec: LaunchSpec) -> Result<Sandbox, InterpreterError>;

    /// Whether sessions can be limited to a list of hosts.
    fn supports_allowlist(&self) -> bool {
        false
    }

    /// Changes the limits of a control group: adds the engine's own memory and processes.
    fn add_overhead(&self, _limits: &mut Limits) {}

    /// Whether the runner's parent is the first process of a namespace that has only the session's processes, so
    /// that the runner can pause all others at once.
    fn has_pid_namespace(&self) -> bool {
        false
    }

    /// The limits that the engine enforces itself; `None` if its sandboxes join our control groups.
    fn enforced_limits(&self) -> Option<EnforcedLimits> {
        None
    }

    /// Whether each process also sets resource limits when the whole session is limited.
    fn wants_rlimits(&self) -> bool {
        false
    }

    /// Whether workspaces are on another machine; then [`Engine::collect`] and [`Engine::digest`] read them.
    fn is_remote(&self) -> bool {
        false
    }

    /// Collects `./output` of a remote workspace.
    async fn collect(
        &self,
        _workspace: &Workspace,
        _limits: &Limits,
    ) -> Result<Collected, InterpreterError> {
        Ok(Collected::default())
    }

    /// A digest of the contents of a remote workspace.
    async fn digest(&self, _workspace: &Workspace) -> Result<String, InterpreterError> {
        Ok(String::new())
    }

    /// Adds a remedy, if one is known, to the error output of a sandbox that failed to start.
    fn explain(&self, stderr: String) -> String {
        stderr
    }

    /// Weaknesses of this engine on this machine.
    fn warnings(&self) -> Vec<&'static str> {
        Vec::new()
    }
}

/// What an engine needs to know of this machine.
pub struct HostEnv {
    pub environment: Environment,
    /// The thread that starts processes.
    pub worker: Worker,
    pub storage: Storage,
    /// Host users for sessions; `None` if this process cannot switch users.
    pub users: Option<Range<u32>>,
}
