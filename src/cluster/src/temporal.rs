//! Temporal's development server, whose data are in a folder: one process with a SQLite file.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pybench_run::{RunError, TemporalServer, write_atomically};
use rustix::process::{Pid, Signal, kill_process};

use crate::free_port;
use crate::seaweedfs::last_lines;
use crate::user::User;

/// Folder of the data, below that of the cluster.
pub(crate) const DATA: &str = "temporal";

/// Time to wait for a start or a stop.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What differs from the server's defaults: units are activities without a workflow.
const SETTINGS: [&str; 1] = ["activity.enableStandalone=true"];

pub(crate) struct Temporal<'a> {
    program: PathBuf,
    data: PathBuf,
    user: Option<&'a User>,
}

impl<'a> Temporal<'a> {
    pub(crate) fn new(server: &Path, cluster: &Path, user: Option<&'a User>) -> Self {
        Self {
            program: server.join("bin/temporal"),
            data: cluster.join(DATA),
            user,
        }
    }

    /// Creates the folder of the data where there is none.
    pub(crate) fn create(&self) -> Result<(), RunError> {
        if self.data.is_dir() {
            return Ok(());
        }
        let wrap = || RunError::io(self.data.display().to_string());
        fs::create_dir(&self.data).map_err(wrap())?;
        match self.user {
            Some(user) => {
                std::os::unix::fs::chown(&self.data, Some(user.uid), Some(user.gid)).map_err(wrap())
            }
            None => Ok(()),
        }
    }

    /// The server that runs, if one does.
    pub(crate) fn runs(&self) -> Option<Pid> {
        let (pid, _) = self.recorded()?;
        // The number may belong to another program by now; one that has ended has no arguments.
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments);
        let own = self.database().display().to_string();
        arguments
            .split('\0')
            .any(|argument| argument == own)
            .then(|| Pid::from_raw(pid))?
    }

    /// Port of the web interface of the server that runs.
    pub(crate) fn ui_port(&self) -> Option<u16> {
        self.runs()?;
        Some(self.recorded()?.1)
    }

    /// Starts the server, and returns once its namespace answers.
    pub(crate) fn start(&self, port: u16) -> Result<(), RunError> {
        let log = self.data.with_extension("log");
        let wrap = |path: &Path| RunError::io(path.display().to_string());
        let file = File::create(&log).map_err(wrap(&log))?;
        let again = file.try_clone().map_err(wrap(&log))?;
        let ui_port = free_port()?;
        let mut command = self.program();
        command
            .args(["server", "start-dev", "--ip", "127.0.0.1"])
            .args(["--port", &port.to_string()])
            .args(["--ui-port", &ui_port.to_string()])
            .args(["--namespace", &TemporalServer::default().namespace])
            .args(["--log-level", "warn"])
            .arg("--db-filename")
            .arg(self.database());
        for setting in SETTINGS {
            command.args(["--dynamic-config-value", setting]);
        }
        command
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(again)
            // Ctrl-C in the terminal of `up` must not end it.
            .process_group(0);
        let mut child = command.spawn().map_err(wrap(&self.program))?;
        let record = format!("{}\n{ui_port}\n", child.id());
        write_atomically(&self.pid_file(), record.as_bytes())?;
        self.wait(&mut child, port, &log)
    }

    fn wait(&self, child: &mut Child, port: u16, log: &Path) -> Result<(), RunError> {
        let since = Instant::now();
        while !self.answers(port)? {
            let ended = child
                .try_wait()
                .map_err(RunError::io(self.program.display().to_string()))?;
            if ended.is_some() || since.elapsed() > TIMEOUT {
                return Err(RunError::Environment(format!(
                    "Temporal does not start on port {port}; if another program uses that port, give another one with \
                     --temporal-port; the end of {}:\n{}",
                    log.display(),
                    last_lines(log)
                )));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    /// Whether the server knows its namespace.
    fn answers(&self, port: u16) -> Result<bool, RunError> {
        let mut describe = self.program();
        describe
            .args(["operator", "namespace", "describe"])
            .args(["--namespace", &TemporalServer::default().namespace])
            .args(["--address", &format!("127.0.0.1:{port}")])
            .args(["--command-timeout", "5s"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let status = describe
            .status()
            .map_err(RunError::io(self.program.display().to_string()))?;
        Ok(status.success())
    }

    /// Ends the server; whether it ran.
    pub(crate) fn stop(&self) -> Result<bool, RunError> {
        let Some(pid) = self.runs() else {
            return Ok(false);
        };
        let signal = |signal| {
            kill_process(pid, signal).map_err(|error| RunError::io("Temporal")(error.into()))
        };
        signal(Signal::TERM)?;
        let since = Instant::now();
        while self.runs().is_some() {
            if since.elapsed() > TIMEOUT {
                tracing::warn!("Temporal does not end, and is killed");
                signal(Signal::KILL)?;
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(true)
    }

    /// The program, which reads no configuration of this user and does not ask its makers for newer versions.
    fn program(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .current_dir("/")
            .env("HOME", &self.data)
            .args(["--disable-config-file", "--disable-config-env"])
            .env("TEMPORAL_VERSION_CHECK_DISABLED", "1");
        if let Some(user) = self.user {
            user.run(&mut command);
        }
        command
    }

    /// Process and port of the web interface, as the last start has recorded them.
    fn recorded(&self) -> Option<(i32, u16)> {
        let text = fs::read_to_string(self.pid_file()).ok()?;
        let (pid, ui_port) = text.trim().split_once('\n')?;
        Some((pid.parse().ok()?, ui_port.parse().ok()?))
    }

    fn database(&self) -> PathBuf {
        self.data.join("temporal.db")
    }

    fn pid_file(&self) -> PathBuf {
        self.data.with_extension("pid")
    }
}
