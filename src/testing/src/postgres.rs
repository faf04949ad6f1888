//! A PostgreSQL server for the tests of one program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use pybench_cluster::{Cluster, PROFILE, install_postgres};
use pybench_run::{PostgresServer, Profile, program};
use rustix::process::{Pid, Signal, kill_process};

use crate::{ROOT, skip};

/// The server, which ends with this process.
struct TestServer {
    profile: PathBuf,
    programs: PathBuf,
    /// Ends the server and deletes its data once its standard input is closed.
    _watch: Child,
}

/// Profile of a server of this program. `None`, and the test is skipped, if it cannot be installed.
pub fn profile() -> Option<PathBuf> {
    Some(server()?.profile.clone())
}

/// The address of that server.
pub fn address() -> Option<PostgresServer> {
    Some(Profile::load(&server()?.profile).unwrap().postgres)
}

/// The rows of a statement, as text.
pub fn sql(statement: &str) -> String {
    server().unwrap().sql(statement)
}

/// A server of one test, which may be restarted; it ends with this process.
pub struct SeparateServer {
    server: TestServer,
    folder: PathBuf,
}

impl SeparateServer {
    /// `None`, and the test is skipped, if it cannot be installed.
    pub fn start() -> Option<Self> {
        let (programs, folder) = (programs()?, folder());
        let server = start(programs, &folder);
        Some(Self { server, folder })
    }

    pub fn profile(&self) -> &Path {
        &self.server.profile
    }

    /// The rows of a statement, as text.
    pub fn sql(&self, statement: &str) -> String {
        self.server.sql(statement)
    }

    /// Ends the server, with all connections, and starts it again on its port.
    pub fn restart(&self) {
        let cluster = Cluster::new(&self.folder).unwrap();
        cluster.down(&self.server.programs, false).unwrap();
        cluster.up(&self.server.programs, None).unwrap();
    }

    /// As [`Self::restart`], and the server has no time to finish anything.
    pub fn crash(&self) {
        let file = self.folder.join("postgres/postmaster.pid");
        let pid = std::fs::read_to_string(&file).unwrap();
        let pid = pid.lines().next().unwrap().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::QUIT).unwrap();
        while file.exists() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let cluster = Cluster::new(&self.folder).unwrap();
        cluster.up(&self.server.programs, None).unwrap();
    }
}

impl TestServer {
    fn sql(&self, statement: &str) -> String {
        let address = Profile::load(&self.profile).unwrap().postgres;
        let psql = self.programs.join("bin/psql");
        ask(&psql, &address, statement)
    }
}

fn ask(psql: &Path, address: &PostgresServer, statement: &str) -> String {
    let password = std::fs::read_to_string(address.password_file.as_ref().unwrap()).unwrap();
    let output = Command::new(psql)
        .args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            &address.host,
        ])
        .args([
            "-p",
            &address.port.to_string(),
            "-U",
            &address.user,
            "-d",
            &address.database,
        ])
        .args(["-c", statement])
        .env("PGPASSWORD", password)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Where the package is installed. `None`, and the test is skipped, if it cannot be.
pub fn programs() -> Option<PathBuf> {
    match install_postgres(&find_uv()) {
        Ok(programs) => Some(programs),
        Err(error) => {
            skip::missing_tool(error);
            None
        }
    }
}

fn server() -> Option<&'static TestServer> {
    static SERVER: OnceLock<Option<TestServer>> = OnceLock::new();
    SERVER
        .get_or_init(|| Some(start(programs()?, &folder())))
        .as_ref()
}

fn start(programs: PathBuf, folder: &Path) -> TestServer {
    Cluster::new(folder).unwrap().up(&programs, None).unwrap();
    let script = "cat >/dev/null; read -r pid rest <\"$1/postgres/postmaster.pid\"; kill -QUIT \"$pid\"
        for _ in $(seq 100); do [ -e \"$1/postgres/postmaster.pid\" ] || break; sleep 0.1; done; rm -rf \"$1\"";
    TestServer {
        profile: folder.join(PROFILE),
        programs,
        _watch: after_this_process(script, folder),
    }
}

/// Starts a shell script with `folder` as `$1`. Its standard input is closed when this process ends.
pub(crate) fn after_this_process(script: &str, folder: &Path) -> Child {
    Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// A folder that the user of the server can enter.
pub fn folder() -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap().keep();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

pub(crate) fn find_uv() -> PathBuf {
    let named = std::env::var_os("UV").map(PathBuf::from);
    let own = Path::new(ROOT).join(".tools/bin/uv");
    let own = own.canonicalize().ok().filter(|path| path.is_file());
    named
        .or(own)
        .or_else(|| program::find("uv"))
        .unwrap_or_else(|| "uv".into())
}
