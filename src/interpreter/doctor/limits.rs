//! Which bounds of a session the kernel enforces here.

use super::Finding;
use crate::interpreter::cgroup::Cgroups;
use crate::interpreter::seccomp;

/// The questions.
const PROBES: &[fn() -> Finding] = &[memory, processes, workspace, system_calls];

pub(super) fn examine() -> Vec<Finding> {
    PROBES.iter().map(|probe| probe()).collect()
}

const DELEGATE: &str = "run as root, or in a systemd scope with Delegate=yes";

fn memory() -> Finding {
    match Cgroups::detect().versions()[0] {
        Some(version) => Finding::good("memory", format!("control groups, version {version}")),
        None => Finding::weak(
            "memory",
            "no writable control group: a resource limit instead",
            "memory is bounded for each process, not for a session",
        )
        .remedy(DELEGATE),
    }
}

fn processes() -> Finding {
    match Cgroups::detect().versions()[1] {
        Some(version) => Finding::good("processes", format!("control groups, version {version}")),
        None => Finding::weak(
            "processes",
            "no writable control group: a resource limit instead",
            "processes are counted for a user, over all sessions that share it",
        )
        .remedy(DELEGATE),
    }
}

fn workspace() -> Finding {
    match rustix::process::geteuid().is_root() {
        true => Finding::good("workspace", "a file system in memory, of bounded size"),
        false => Finding::weak(
            "workspace",
            "a folder on disk, measured twice a second",
            "a session can fill the disk for half a second",
        )
        .remedy("run as root: sessions get users of their own and file systems in memory"),
    }
}

fn system_calls() -> Finding {
    match seccomp::program().is_empty() {
        false => Finding::good("system calls", "a filter lets through what Python needs"),
        true => Finding::weak(
            "system calls",
            format!("no filter for {}", std::env::consts::ARCH),
            "namespaces alone keep sessions in",
        ),
    }
}
