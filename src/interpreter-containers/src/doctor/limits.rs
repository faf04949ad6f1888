//! Checks which session limits the kernel enforces on this machine.

use super::Finding;
use pybench_interpreter::cgroup::Cgroups;
use pybench_interpreter::seccomp;

const PROBES: &[fn() -> Finding] = &[memory, processes, processors, workspace, system_calls];

pub(super) fn examine() -> Vec<Finding> {
    PROBES.iter().map(|probe| probe()).collect()
}

const DELEGATE: &str = "run as root, or in a systemd scope with Delegate=yes";

fn memory() -> Finding {
    match Cgroups::detect().versions()[0] {
        Some(version) => Finding::good("memory", format!("control groups, version {version}")),
        None => Finding::weak(
            "memory",
            "no writable control group: resource limits are used instead",
            "memory is limited per process, not per session",
        )
        .remedy(DELEGATE),
    }
}

fn processes() -> Finding {
    match Cgroups::detect().versions()[1] {
        Some(version) => Finding::good("processes", format!("control groups, version {version}")),
        None => Finding::weak(
            "processes",
            "no writable control group: resource limits are used instead",
            "processes are counted per user, over all sessions of that user",
        )
        .remedy(DELEGATE),
    }
}

fn processors() -> Finding {
    match Cgroups::detect().versions()[2] {
        Some(version) => Finding::good("processors", format!("control groups, version {version}")),
        None => Finding::weak(
            "processors",
            "no writable control group: nothing limits a session's share",
            "a session that keeps all processors busy slows the others",
        )
        .remedy(DELEGATE),
    }
}

fn workspace() -> Finding {
    match rustix::process::geteuid().is_root() {
        true => Finding::good("workspace", "an in-memory file system of limited size"),
        false => Finding::weak(
            "workspace",
            "a folder on disk, measured twice a second",
            "a session can fill the disk for half a second",
        )
        .remedy("run as root: each session gets its own user and an in-memory file system"),
    }
}

fn system_calls() -> Finding {
    match seccomp::program().is_empty() {
        false => Finding::good("system calls", "a seccomp filter refuses dangerous calls"),
        true => Finding::weak(
            "system calls",
            format!("no filter for {}", std::env::consts::ARCH),
            "only namespaces isolate sessions",
        ),
    }
}
