//! The `interpreter` section of recipes: isolation tier, limits and network.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Limits;

/// The sandbox in which cells run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct InterpreterChoice {
    /// Isolation tier.
    pub tier: Tier,
    /// Resource limits of a session.
    pub limits: Limits,
    /// A local folder of wheels that cells can `pip install` from.
    pub wheelhouse: Option<PathBuf>,
    /// Hosts that cells may connect to, through a proxy that logs each request: `packages.example:443`,
    /// `*.example.org` (its subdomains), `192.0.2.7:8080`. Private addresses must be listed as addresses.
    /// Empty: no network.
    #[schemars(length(max = 1000))]
    pub network: Vec<String>,
}

impl Default for InterpreterChoice {
    fn default() -> Self {
        Self {
            tier: Tier::Jail,
            limits: Limits::default(),
            wheelhouse: None,
            network: Vec::new(),
        }
    }
}

/// Isolation tiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// Each session is forked from a warm Python server and isolated by namespaces and seccomp. Falls
    /// back to bubblewrap if the machine refuses this.
    Jail,
    /// A new Python process per session, in bubblewrap.
    Bwrap,
    /// A new Python process per session in rootless gVisor, which has its own kernel: stronger isolation,
    /// slower.
    Gvisor,
    /// A Docker container per session.
    Docker,
    /// A Podman container per session.
    Podman,
    /// A Kubernetes pod per session.
    Kubernetes,
    /// No isolation, for debugging only: cells can do everything that this user can.
    Unsandboxed,
}

impl Tier {
    /// Whether sessions can be limited to a list of hosts.
    pub fn supports_allowlist(self) -> bool {
        !matches!(self, Self::Kubernetes | Self::Unsandboxed)
    }

    /// Error message for tiers that cannot limit sessions to a list of hosts.
    pub const NO_ALLOWLIST: &str = "the tiers `kubernetes` (the cluster controls a pod's network) and `unsandboxed` cannot limit \
                                sessions to a list of hosts: leave the list empty, or choose another tier";
}
