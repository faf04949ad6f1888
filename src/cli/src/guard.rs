//! Sessions of processes that share a run end before the leases of their units do.

use std::path::Path;

use pybench_interpreter::session_guard::SessionGuard;
use pybench_run::{RunContext, RunError, WorkerSettings};

/// The program that runs, also if its file was replaced since.
const PROGRAM: &str = "/proc/self/exe";

/// Starts the guard of a process that works on a run with these settings.
///
/// # Errors
/// The guard cannot be started.
pub(crate) fn start(settings: &WorkerSettings) -> Result<SessionGuard, RunError> {
    // Leases are renewed after a third of their duration, so that at least two thirds are left of one.
    let lifetime = settings.lease() / 2;
    SessionGuard::start(Path::new(PROGRAM), lifetime)
        .map_err(RunError::io("cannot start the guard of the sessions"))
}

/// As [`start`], if other processes can join the run: otherwise no process takes over the units of a suspended one.
///
/// # Errors
/// As [`start`].
pub(crate) fn of_run(context: &RunContext) -> Result<Option<SessionGuard>, RunError> {
    context.folder.workers().as_ref().map(start).transpose()
}
