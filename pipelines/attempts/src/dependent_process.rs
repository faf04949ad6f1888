//! Processes that must not outlive the one that starts them, even if that is killed.

use std::io;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use tokio::process::Command;

/// A command whose process is killed when its handle is dropped, and gets SIGTERM when the thread that has started it
/// ends, as it does where this process is killed. Ctrl-C in a terminal does not reach it.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).process_group(0);
    command.kill_on_drop(true);
    let parent = getpid();
    // SAFETY: two system calls on the new process; nothing is allocated or locked.
    unsafe { command.pre_exec(move || end_with(parent)) };
    command
}

fn end_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // It may have ended before the call, and then sends nothing.
    match getppid() == Some(parent) {
        true => Ok(()),
        false => Err(io::Error::from(io::ErrorKind::Interrupted)),
    }
}
