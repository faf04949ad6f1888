//! Processes that end with this one.

use std::net::{IpAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Gives the process SIGTERM if this one dies, and a process group of its own: Ctrl-C in a terminal must not reach it twice.
pub(crate) fn depend(command: &mut Command) {
    command.process_group(0);
    // SAFETY: prctl may be called between fork and exec.
    #[cfg(target_os = "linux")]
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
            Ok(())
        });
    }
}

/// Asks a process that has not been waited for to end.
pub(crate) fn terminate(child: &Child) {
    // SAFETY: the child has not been waited for, so its id is still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
}

/// A port that is free now, and very likely still free when the process listens on it.
pub(crate) fn free_port(host: IpAddr) -> std::io::Result<u16> {
    Ok(TcpListener::bind((host, 0))?.local_addr()?.port())
}
