//! Engines that put a session into a container, for machines that trust more than namespaces: the same
//! runner and the same protocol. `describe` says what a session's container is; `gvisor`, `docker` (and
//! podman) and `kubernetes` each say it in their engine's words.

pub(super) mod describe;
pub(super) mod docker;
mod given;
pub(super) mod gvisor;
pub(super) mod kubernetes;
mod manifest;
mod program;
mod relay;
mod settings;

pub use settings::{ClusterSettings, ContainerSettings, EngineSettings};
