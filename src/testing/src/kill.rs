//! Ends processes from outside.

use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Kills the child's process group after `moment`; how it ended, where it did so by itself before.
pub fn kill_after(child: Child, moment: Duration) -> Option<ExitStatus> {
    signal_after(child, Signal::KILL, moment)
}

/// Sends a signal to the child's process group after `moment`, and waits for its end; how it ended, where it did so by
/// itself before.
pub fn signal_after(mut child: Child, signal: Signal, moment: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + moment;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process_group(Pid::from_child(&child), signal).unwrap();
    // It may have been complete when the signal came.
    Some(child.wait().unwrap()).filter(ExitStatus::success)
}
