//! Engines that put a session into a container, for machines that trust more than namespaces: the same
//! runner and the same protocol.

pub(super) mod gvisor;
