//! How libtorch's threads wait for each other.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Read by the OpenMP library when it is loaded, which is before `main`.
const POLICY: &str = "OMP_WAIT_POLICY";

/// Lets libtorch's threads sleep while they wait: on a busy machine spinning threads can stall each other. Unless the
/// environment says otherwise, the program starts again with these variables, since it is too late for this process.
pub fn sleep_while_waiting() {
    if env::var_os(POLICY).is_some() {
        return;
    }
    let Ok(program) = env::current_exe() else {
        return;
    };
    let mut again = Command::new(program);
    again
        .args(env::args_os().skip(1))
        .env(POLICY, "passive")
        .env("GOMP_SPINCOUNT", "0");
    // It returns only if that fails: then threads spin.
    let _ = again.exec();
}
