//! Attempts to get out of the sandbox, to exhaust the machine, and to deceive the host. Where it is
//! harmless, an attempt is first shown to succeed outside, so that a broken attempt proves nothing.

#[path = "endings.rs"]
mod endings;
#[path = "frames.rs"]
mod frames;
#[path = "host.rs"]
mod host;
#[path = "limits.rs"]
mod limits;
#[path = "neighbors.rs"]
mod neighbors;
#[path = "network.rs"]
mod network;
#[path = "outputs.rs"]
mod outputs;
#[path = "random.rs"]
mod random;
#[cfg(target_arch = "x86_64")] // calls are made by their numbers
#[path = "table.rs"]
mod table;

use std::process::Command;

use pybench_interpreter::{SessionSpec, Tier};
use pybench_testing::sessions::*;
use pybench_types::observation::Observation;

fn tier() -> Tier {
    tier_of(module_path!())
}

async fn start() -> Option<Live> {
    start_with(SessionSpec::default()).await
}

async fn start_with(spec: SessionSpec) -> Option<Live> {
    start_in(tier(), spec).await
}

/// Whether the session's kernel is gVisor's.
fn in_gvisor() -> bool {
    tier() == Tier::Gvisor
}

/// `attempt(name, f)` prints what became of it; the answers are compared as one text.
const PRELUDE: &str = "
import ctypes, os, signal, socket, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def attempt(f):
    try: return f()
    except OSError as error: return error.strerror or type(error).__name__
def call(number, *arguments):
    return 'done' if libc.syscall(number, *arguments) >= 0 else os.strerror(ctypes.get_errno())
";

async fn attack(code: &str) -> Option<Observation> {
    let mut session = start_with(with_limits(|limits| {
        limits.memory_mib = 512;
        limits.processes = 32;
        limits.cell_seconds = if in_gvisor() { 300 } else { 30 }; // its kernel is slower
    }))
    .await?;
    let seen = session.run(&format!("{PRELUDE}{code}")).await;
    session.close().await;
    Some(seen)
}

async fn answers(code: &str, expected: &str) {
    let Some(seen) = attack(code).await else {
        return;
    };
    assert_eq!(seen.plain(), expected, "{seen:?}");
}

fn outside(code: &str) -> String {
    let output = Command::new("python3").args(["-c", code]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
