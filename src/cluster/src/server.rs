//! What the servers with a data folder and one process have in common: the folder, the start, the end.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use pybench_run::RunError;
use rustix::process::{Pid, Signal, kill_process};

use crate::user::User;

/// Time to wait for a start or a stop.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two looks at a server that starts or ends.
const PAUSE: Duration = Duration::from_millis(100);

/// A server, as messages name it.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    /// Option of `pybench cluster up` that chooses its port.
    pub(crate) port_option: &'static str,
}

impl Server {
    /// Waits until a server that was started is ready.
    pub(crate) fn wait(
        &self,
        child: &mut Child,
        port: u16,
        log: &Path,
        is_ready: impl Fn() -> Result<bool, RunError>,
    ) -> Result<(), RunError> {
        let since = Instant::now();
        while !is_ready()? {
            let ended = child.try_wait().map_err(RunError::io(self.name))?;
            if ended.is_some() || since.elapsed() > TIMEOUT {
                return Err(RunError::Environment(format!(
                    "{} does not start on port {port}; if another program uses that port, give another one with {}; \
                     the end of {}:\n{}",
                    self.name,
                    self.port_option,
                    log.display(),
                    last_lines(log)
                )));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Ends the server; whether it ran.
    pub(crate) fn stop(&self, runs: impl Fn() -> Option<Pid>) -> Result<bool, RunError> {
        let Some(pid) = runs() else {
            return Ok(false);
        };
        let signal = |signal| {
            kill_process(pid, signal).map_err(|error| RunError::io(self.name)(error.into()))
        };
        signal(Signal::TERM)?;
        let since = Instant::now();
        while runs().is_some() {
            if since.elapsed() > TIMEOUT {
                tracing::warn!("{} does not end, and is killed", self.name);
                signal(Signal::KILL)?;
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(true)
    }
}

/// Creates the folder of a server's data where there is none.
pub(crate) fn create_data(data: &Path, user: Option<&User>) -> Result<(), RunError> {
    if data.is_dir() {
        return Ok(());
    }
    let wrap = || RunError::io(data.display().to_string());
    fs::create_dir(data).map_err(wrap())?;
    match user {
        Some(user) => {
            std::os::unix::fs::chown(data, Some(user.uid), Some(user.gid)).map_err(wrap())
        }
        None => Ok(()),
    }
}

/// The process, if it runs with this argument. The number may belong to another program by now; one that has ended has no
/// arguments.
pub(crate) fn with_argument(pid: i32, own: &str) -> Option<Pid> {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let arguments = String::from_utf8_lossy(&arguments);
    arguments
        .split('\0')
        .any(|argument| argument == own)
        .then(|| Pid::from_raw(pid))?
}

fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
