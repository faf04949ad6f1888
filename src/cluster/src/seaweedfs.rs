//! A SeaweedFS server, which speaks S3, whose data are in a folder.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use pybench_run::{RunError, write_atomically};
use rustix::process::Pid;

use crate::free_port;
use crate::server::{Server, create_data, with_argument};
use crate::user::User;

/// Folder of the data, below that of the cluster.
pub(crate) const DATA: &str = "seaweedfs";

/// The bucket, which exists from the start.
pub(crate) const BUCKET: &str = "pybench";

/// Name of the only key.
pub(crate) const ACCESS_KEY: &str = "pybench";

const SERVER: Server = Server {
    name: "SeaweedFS",
    port_option: "--store-port",
};

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
        create_data(&self.data, self.user)
    }

    /// The server that runs, if one does.
    pub(crate) fn runs(&self) -> Option<Pid> {
        let pid = fs::read_to_string(self.pid_file()).ok()?;
        let pid: i32 = pid.trim().parse().ok()?;
        let own = format!("-dir={}", self.data.display());
        with_argument(pid, &own)
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
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        SERVER.wait(&mut child, port, &log, || {
            Ok(TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok())
        })
    }

    /// Ends the server; whether it ran.
    pub(crate) fn stop(&self) -> Result<bool, RunError> {
        SERVER.stop(|| self.runs())
    }

    fn pid_file(&self) -> PathBuf {
        self.data.with_extension("pid")
    }
}
