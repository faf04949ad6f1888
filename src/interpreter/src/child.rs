//! Starts child processes, for all tiers. Between fork and exec there are only system calls on values prepared
//! before the fork.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, Signal, set_parent_process_death_signal};
use rustix::thread::{Gid, Uid};

use super::engine::LaunchSpec;
use super::sandbox::HostIo;

/// Signals that may wait for a session's processes.
const MAX_PENDING_SIGNALS: u64 = 1024;

/// Starts the program of a sandbox with the streams of `host_io`. `inside` are the other descriptors that it
/// keeps; our copies of them are closed.
pub(super) fn spawn<const N: usize>(
    mut command: Command,
    host_io: &HostIo,
    launch_spec: &LaunchSpec,
    inside: [OwnedFd; N],
) -> io::Result<Child> {
    command
        .process_group(0) // a signal to our group, as from Ctrl-C, must not end a cell whose result we wait for
        .stdin(Stdio::null())
        .stdout(host_io.streams[0].try_clone()?)
        .stderr(host_io.streams[1].try_clone()?);
    let (cgroup_files, user) = (launch_spec.group.cgroup_files()?, launch_spec.user);
    // SAFETY: between fork and exec only system calls are made, on values prepared before; nothing is
    // allocated or locked.
    unsafe {
        command.pre_exec(move || {
            fix_addresses();
            prefer_as_victim();
            limit_pending_signals()?;
            enter(&cgroup_files, &inside, user)?;
            // Last, since switching users resets it. Launcher threads end with the process.
            Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
        })
    };
    command.spawn()
}

/// Joins the control groups, keeps only the descriptors `inside` open across exec, and switches to `user`.
pub fn enter(cgroup_files: &[File], inside: &[OwnedFd], user: Option<u32>) -> io::Result<()> {
    for join in cgroup_files {
        rustix::io::write(join, b"0")?;
    }
    // SAFETY: marks descriptors, this process's own, to be closed when the program starts.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    for fd in inside {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
    }
    if let Some(id) = user {
        let (user, group) = (Uid::from_raw(id), Gid::from_raw(id));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(group, group, group)?;
        rustix::thread::set_thread_res_uid(user, user, user)?;
    }
    Ok(())
}

/// Lets the OOM killer take the sandbox before others. Its cells can make that likelier, but not less likely if we
/// have CAP_SYS_RESOURCE.
fn prefer_as_victim() {
    let flags = (OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    if let Ok(file) = rustix::fs::open(c"/proc/self/oom_score_adj", flags.0, flags.1) {
        let _ = rustix::io::write(file, b"300"); // the limits of the session hold without it
    }
}

/// Pending signals count as those of the user who runs us, too. The limit of the tier `jail` is the same.
fn limit_pending_signals() -> io::Result<()> {
    let allowed = rustix::process::getrlimit(Resource::Sigpending).maximum;
    let most = Some(allowed.unwrap_or(u64::MAX).min(MAX_PENDING_SIGNALS));
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    Ok(rustix::process::setrlimit(Resource::Sigpending, limit)?)
}

/// Disables address space randomization, so that `id()` and the order of sets of objects repeat. Has no
/// effect if the kernel refuses it.
fn fix_addresses() {
    // SAFETY: changes a flag of this process only.
    unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
}
