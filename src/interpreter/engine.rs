//! What differs between the tiers that run on this machine: how a sandbox comes into being.

use std::sync::Arc;

use async_trait::async_trait;

use super::cgroup::Group;
use super::sandbox::Sandbox;
use super::workspace::Workspace;
use super::{InterpreterError, SessionSpec};

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

/// Makes sandboxes in which the runner waits for `init`.
#[async_trait]
pub(super) trait Engine: Send + Sync {
    /// Make one.
    async fn launch(&self, order: Order) -> Result<Sandbox, InterpreterError>;

    /// Whether a session of it can have a list of hosts to reach, and nothing else.
    fn holds_to_hosts(&self) -> bool {
        false
    }

    /// Processes and threads of its own that it needs beside a session's.
    fn helpers(&self) -> u64 {
        0
    }

    /// What it cannot do here.
    fn warnings(&self) -> Vec<&'static str> {
        Vec::new()
    }
}
