//! Temporal's development server, whose data are in a folder: one process with a SQLite file.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pybench_run::{RunError, TemporalServer, write_atomically};
use rustix::process::Pid;

use crate::free_port;
use crate::server::{Server, create_data, with_argument};
use crate::user::User;

/// Folder of the data, below that of the cluster.
pub(crate) const DATA: &str = "temporal";

const SERVER: Server = Server {
    name: "Temporal",
    port_option: "--temporal-port",
};

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
        create_data(&self.data, self.user)
    }

    /// The server that runs, if one does.
    pub(crate) fn runs(&self) -> Option<Pid> {
        let (pid, _) = self.recorded()?;
        let own = self.database().display().to_string();
        with_argument(pid, &own)
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
        SERVER.wait(&mut child, port, &log, || self.answers(port))
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
        SERVER.stop(|| self.runs())
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
