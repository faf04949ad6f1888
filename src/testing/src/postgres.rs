//! A PostgreSQL server for the tests of one program.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use pybench_cluster::{Cluster, PROFILE, install_postgres};
use pybench_run::{PostgresServer, Profile, program};

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
    let server = server().unwrap();
    let address = Profile::load(&server.profile).unwrap().postgres;
    let password = std::fs::read_to_string(address.password_file.unwrap()).unwrap();
    let output = Command::new(server.programs.join("bin/psql"))
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
    SERVER.get_or_init(|| Some(start(programs()?))).as_ref()
}

fn start(programs: PathBuf) -> TestServer {
    let folder = folder();
    Cluster::new(&folder).unwrap().up(&programs, None).unwrap();
    let script = "cat >/dev/null; read -r pid rest <\"$1/postgres/postmaster.pid\"; kill -QUIT \"$pid\"
        for _ in $(seq 100); do [ -e \"$1/postgres/postmaster.pid\" ] || break; sleep 0.1; done; rm -rf \"$1\"";
    TestServer {
        profile: folder.join(PROFILE),
        programs,
        _watch: after_this_process(script, &folder),
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
