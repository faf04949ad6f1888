//! Processes that end with this one.

use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Gives the process SIGTERM if this one dies, and a process group of its own: Ctrl-C in a terminal must not reach it twice.
pub(crate) fn depend(command: &mut Command) {
    command.process_group(0);
    #[cfg(target_os = "linux")]
    {
        let parent = std::process::id();
        // SAFETY: two system calls on the new process; nothing is allocated or locked.
        unsafe { command.pre_exec(move || end_with(parent)) };
    }
}

#[cfg(target_os = "linux")]
fn end_with(parent: u32) -> io::Result<()> {
    // SAFETY: both calls may be made between fork and exec.
    let (failed, found) = unsafe {
        let failed = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0;
        (failed, libc::getppid())
    };
    if failed {
        return Err(io::Error::last_os_error());
    }
    // The parent may have ended before the first call, and then sends nothing.
    match u32::try_from(found) == Ok(parent) {
        true => Ok(()),
        false => Err(io::Error::from(io::ErrorKind::Interrupted)),
    }
}

/// Asks a process that has not been waited for to end.
pub(crate) fn terminate(child: &Child) {
    // SAFETY: the child has not been waited for, so its id is still its own.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
}

/// A port that is free now, and very likely still free when the process listens on it.
pub(crate) fn free_port(host: IpAddr) -> io::Result<u16> {
    Ok(TcpListener::bind((host, 0))?.local_addr()?.port())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_starts_only_while_its_parent_lives() {
        let mut command = Command::new("true");
        depend(&mut command);
        assert!(command.status().unwrap().success());
        // As if the parent had ended before the child could ask for the signal: its parent is another process.
        let mut orphan = Command::new("true");
        // SAFETY: as in `depend`.
        unsafe { orphan.pre_exec(|| end_with(u32::MAX)) };
        assert!(orphan.status().is_err());
    }
}
