//! What differs between the tiers that run on this machine: how a sandbox comes into being.

use std::sync::Arc;

use async_trait::async_trait;

use super::cgroup::Group;
use super::sandbox::Sandbox;
use super::workspace::Workspace;
use super::{Collected, InterpreterError, Limits, SessionSpec};

/// What one sandbox gets.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) workspace: Arc<Workspace>,
    pub(super) spec: SessionSpec,
    /// Host user to become first; `None` where we are unprivileged already.
    pub(super) user: Option<u32>,
    pub(super) group: Group,
}

impl Order {
    /// Bytes that each of the folders which begin empty and vanish may hold.
    pub(super) fn temporary(&self) -> u64 {
        (self.spec.limits.memory_mib / 2).max(16) << 20
    }
}

/// What an engine bounds by itself, in place of our control groups.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bounds {
    pub(super) memory: bool,
    pub(super) processes: bool,
}

/// Makes sandboxes in which the runner waits for `init`.
#[async_trait]
pub(super) trait Engine: Send + Sync {
    /// Make one.
    async fn launch(&self, order: Order) -> Result<Sandbox, InterpreterError>;

    /// Whether a session of it can have a list of hosts to reach, and nothing else.
    fn holds_to_hosts(&self) -> bool {
        false
    }

    /// Raise the limits of a control group by what it needs itself beside a session.
    fn allow_for_itself(&self, _limits: &mut Limits) {}

    /// What it bounds by itself; `None` where its sandboxes join our control groups.
    fn bounds(&self) -> Option<Bounds> {
        None
    }

    /// Whether each process is to bound itself as well, whatever bounds them all.
    fn wants_rlimits(&self) -> bool {
        false
    }

    /// Whether workspaces are elsewhere than on this machine, where [`Engine::collect`] reaches them.
    fn is_remote(&self) -> bool {
        false
    }

    /// Collect `./output` of a workspace that is elsewhere.
    async fn collect(
        &self,
        _workspace: &Workspace,
        _limits: &Limits,
    ) -> Result<Collected, InterpreterError> {
        Ok(Collected::default())
    }

    /// A digest of a workspace that is elsewhere: equal ones hold the same.
    async fn digest(&self, _workspace: &Workspace) -> Result<String, InterpreterError> {
        Ok(String::new())
    }

    /// What a sandbox that did not stand has said, and what to do about it where that is known.
    fn explain(&self, words: String) -> String {
        words
    }

    /// What it cannot do here.
    fn warnings(&self) -> Vec<&'static str> {
        Vec::new()
    }
}
