//! A SeaweedFS server, which speaks S3, whose data are in a folder.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pybench_run::{RunError, write_atomically};
use rustix::process::{Pid, Signal, kill_process};

use crate::free_port;
use crate::user::User;

/// Folder of the data, below that of the cluster.
pub(crate) const DATA: &str = "seaweedfs";

/// The bucket, which exists from the start.
pub(crate) const BUCKET: &str = "pybench";

/// Name of the only key.
pub(crate) const ACCESS_KEY: &str = "pybench";

/// Time to wait for a start or a stop.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct SeaweedFs<'a> {
    program: PathBuf,
    data: PathBuf,
    user: Option<&'a User>,
}

impl<'a> SeaweedFs<'a> {
    pub(crate) fn new(server: &Path, cluster: &Path, user: Option<&'a User>) -> Self {
        Self {
            program: server.join("bin/weed"),
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
        let pid = fs::read_to_string(self.pid_file()).ok()?;
        let pid: i32 = pid.trim().parse().ok()?;
        // The number may belong to another program by now; one that has ended has no arguments.
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments);
        let own = format!("-dir={}", self.data.display());
        arguments
            .split('\0')
            .any(|argument| argument == own)
            .then(|| Pid::from_raw(pid))?
    }

    /// Starts the server, and returns once it listens.
    pub(crate) fn start(&self, port: u16, secret: &str) -> Result<(), RunError> {
        let log = self.data.with_extension("log");
        let file = File::create(&log).map_err(RunError::io(log.display().to_string()))?;
        let again = file
            .try_clone()
            .map_err(RunError::io(log.display().to_string()))?;
        let mut command = Command::new(&self.program);
        command
            .arg("mini")
            .arg(format!("-dir={}", self.data.display()))
            .args(["-ip=127.0.0.1", "-ip.bind=127.0.0.1"])
            .arg(format!("-bucket={BUCKET}"))
            .args(["-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0"])
            .arg("-master.telemetry=false")
            .arg(format!("-s3.port={port}"));
        for flag in [
            "s3.port.grpc",
            "master.port",
            "master.port.grpc",
            "volume.port",
            "volume.port.grpc",
            "filer.port",
            "filer.port.grpc",
        ] {
            command.arg(format!("-{flag}={}", free_port()?));
        }
        command
            .current_dir("/")
            .env("HOME", &self.data)
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", secret)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(again)
            // Ctrl-C in the terminal of `up` must not end it.
            .process_group(0);
        if let Some(user) = self.user {
            user.run(&mut command);
        }
        let mut child = command
            .spawn()
            .map_err(RunError::io(self.program.display().to_string()))?;
        write_atomically(&self.pid_file(), format!("{}\n", child.id()).as_bytes())?;
        let since = Instant::now();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            let ended = child
                .try_wait()
                .map_err(RunError::io(self.program.display().to_string()))?;
            if ended.is_some() || since.elapsed() > TIMEOUT {
                return Err(RunError::Environment(format!(
                    "SeaweedFS does not start on port {port}; if another program uses that port, give another one with \
                     --store-port; the end of {}:\n{}",
                    log.display(),
                    last_lines(&log)
                )));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Ends the server; whether it ran.
    pub(crate) fn stop(&self) -> Result<bool, RunError> {
        let Some(pid) = self.runs() else {
            return Ok(false);
        };
        let signal = |signal| {
            kill_process(pid, signal).map_err(|error| RunError::io("SeaweedFS")(error.into()))
        };
        signal(Signal::TERM)?;
        let since = Instant::now();
        while self.runs().is_some() {
            if since.elapsed() > TIMEOUT {
                tracing::warn!("SeaweedFS does not end, and is killed");
                signal(Signal::KILL)?;
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(true)
    }

    fn pid_file(&self) -> PathBuf {
        self.data.with_extension("pid")
    }
}

pub(crate) fn last_lines(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
