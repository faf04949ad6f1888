//! An S3 server for the tests of one program.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::OnceLock;

use pybench_cluster::{Cluster, install_seaweedfs};
use pybench_run::ObjectServer;

use crate::{postgres, skip};

/// The server, which ends with this process.
struct TestServer {
    server: ObjectServer,
    /// Ends the server and deletes its data once its standard input is closed.
    _watch: Child,
}

/// A server of this program. `None`, and the test is skipped, if it cannot be installed.
pub fn server() -> Option<ObjectServer> {
    static SERVER: OnceLock<Option<TestServer>> = OnceLock::new();
    let server = SERVER.get_or_init(|| Some(start(&programs()?)));
    server.as_ref().map(|test| test.server.clone())
}

/// Where the package is installed. `None`, and the test is skipped, if it cannot be.
pub fn programs() -> Option<PathBuf> {
    match install_seaweedfs(&postgres::find_uv()) {
        Ok(programs) => Some(programs),
        Err(error) => {
            skip::missing_tool(error);
            None
        }
    }
}

fn start(programs: &Path) -> TestServer {
    let folder = postgres::folder();
    let cluster = Cluster::new(&folder).unwrap();
    let server = cluster.start_store(programs, None, None).unwrap();
    let script = "cat >/dev/null; read -r pid <\"$1/seaweedfs.pid\"; kill -KILL \"$pid\"
        for _ in $(seq 100); do [ -s \"/proc/$pid/cmdline\" ] || break; sleep 0.1; done; rm -rf \"$1\"";
    TestServer {
        server,
        _watch: postgres::after_this_process(script, &folder),
    }
}
