//! A Temporal server for the tests of one program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use pybench_cluster::{Cluster, install_temporal};
use pybench_run::TemporalServer;
use rustix::process::{Pid, Signal, kill_process};

use crate::{postgres, skip};

/// The server, which ends with this process.
struct TestServer {
    server: TemporalServer,
    /// Ends the server and deletes its data once its standard input is closed.
    _watch: Child,
}

/// A server of this program. `None`, and the test is skipped, if it cannot be installed.
pub fn server() -> Option<TemporalServer> {
    static SERVER: OnceLock<Option<TestServer>> = OnceLock::new();
    let server = SERVER.get_or_init(|| Some(start(&programs()?, &postgres::folder())));
    server.as_ref().map(|test| test.server.clone())
}

/// A server of one test, which may be killed; it ends with this process.
pub struct SeparateServer {
    test: TestServer,
    programs: PathBuf,
    folder: PathBuf,
}

impl SeparateServer {
    /// `None`, and the test is skipped, if it cannot be installed.
    pub fn start() -> Option<Self> {
        let (programs, folder) = (programs()?, postgres::folder());
        let test = start(&programs, &folder);
        Some(Self {
            test,
            programs,
            folder,
        })
    }

    pub fn address(&self) -> &TemporalServer {
        &self.test.server
    }

    /// Folder of its database.
    pub fn data(&self) -> PathBuf {
        self.folder.join("temporal")
    }

    /// Kills the server, and starts it again on its port.
    pub fn crash(&self) {
        let pid = std::fs::read_to_string(self.folder.join("temporal.pid")).unwrap();
        let pid = pid.lines().next().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        // A process that has ended has no arguments, also if nobody waits for it.
        let arguments = format!("/proc/{pid}/cmdline");
        while std::fs::read(&arguments).is_ok_and(|arguments| !arguments.is_empty()) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let known = Some(self.test.server.clone());
        let cluster = Cluster::new(&self.folder).unwrap();
        cluster.start_temporal(&self.programs, known, None).unwrap();
    }
}

/// Where the package is installed. `None`, and the test is skipped, if it cannot be.
pub fn programs() -> Option<PathBuf> {
    match install_temporal(&postgres::find_uv()) {
        Ok(programs) => Some(programs),
        Err(error) => {
            skip::missing_tool(error);
            None
        }
    }
}

fn start(programs: &Path, folder: &Path) -> TestServer {
    let cluster = Cluster::new(folder).unwrap();
    let server = cluster.start_temporal(programs, None, None).unwrap().server;
    let script = "cat >/dev/null; read -r pid <\"$1/temporal.pid\"; kill -KILL \"$pid\"
        for _ in $(seq 100); do [ -s \"/proc/$pid/cmdline\" ] || break; sleep 0.1; done; rm -rf \"$1\"";
    let watch = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    TestServer {
        server,
        _watch: watch,
    }
}
