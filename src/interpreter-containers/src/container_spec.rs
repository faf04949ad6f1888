//! Describes a session's container independently of the engine: mounts, environment variables, command.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use pybench_interpreter::engine::LaunchSpec;
use pybench_interpreter::environment::Environment;
use pybench_interpreter::mount_spec::MountSpec;
use pybench_interpreter::network::ProxySocket;
use pybench_interpreter::{seccomp, session_guard};

/// A mount of a container.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Mount {
    /// A file or folder of the host, mounted without set-uid and devices.
    Bind {
        from: PathBuf,
        to: PathBuf,
        writable: bool,
    },
    /// A tmpfs of at most `bytes`.
    Temporary { to: &'static str, bytes: u64 },
}

/// A session's container.
#[derive(Clone, Debug)]
pub(super) struct Container {
    /// In mount order.
    pub(super) mounts: Vec<Mount>,
    /// All environment variables.
    pub(super) variables: Vec<(&'static str, &'static str)>,
    /// The command that runs in it.
    pub(super) command: Vec<String>,
}

/// Where the system and the Python environment come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum SystemSource {
    /// This machine's, mounted read-only.
    Host,
    /// A container image.
    Image,
}

impl Container {
    /// The container of a session. Its command calls `boot.<begin>`; `proxy_socket` is mounted if present.
    pub(super) fn new(
        environment: &Environment,
        launch_spec: &LaunchSpec,
        source: SystemSource,
        begin: &str,
        proxy_socket: Option<&ProxySocket>,
    ) -> Self {
        let mount_spec = MountSpec::for_session(environment, &launch_spec.spec);
        let temporary = |to| Mount::Temporary {
            to,
            bytes: launch_spec.tmpfs_bytes(),
        };
        let mut mounts = vec![temporary("/dev/shm"), temporary("/tmp")];
        let shown = |to: &Path| source == SystemSource::Host || is_ours(to);
        let binds = mount_spec.binds.iter().filter(|(_, to)| shown(to));
        mounts.extend(binds.map(|(from, to)| bind(from, to, false)));
        if source == SystemSource::Host {
            mounts.extend(mount_spec.caches.iter().map(|(from, to)| {
                let from = from.strip_prefix("/opt/env").unwrap_or(from);
                bind(&environment.root.join(from), to, false)
            }));
        }
        let (path, inside) = (launch_spec.workspace.path(), Path::new("/workspace"));
        mounts.push(bind(path, inside, true));
        let read_only = launch_spec.workspace.read_only().iter();
        mounts.extend(read_only.map(|inner| bind(&path.join(inner), &inside.join(inner), false)));
        mounts.extend(proxy_socket.map(|proxy_socket| {
            bind(proxy_socket.folder(), Path::new(PROXY_SOCKET_FOLDER), false)
        }));
        Self {
            mounts,
            variables: mount_spec.variables,
            command: command(begin, Some(&seccomp::program()), proxy_socket.is_some()),
        }
    }
}

/// Creates the proxy socket of a session if it may use the network.
pub(super) fn proxy_socket(
    environment: &Environment,
    launch_spec: &LaunchSpec,
) -> io::Result<Option<ProxySocket>> {
    let make = |_: &_| ProxySocket::make(&environment.cache.join("doors"), launch_spec.user);
    launch_spec.spec.network.as_ref().map(make).transpose()
}

/// The command that calls `boot.<begin>`, optionally with a system call filter and the network relay.
pub(super) fn command(begin: &str, filter: Option<&[u8]>, way: bool) -> Vec<String> {
    let code = code(begin, filter, way, session_guard::lifetime());
    ["/opt/env/bin/python", "-P", "-u", "-c", &code]
        .map(str::to_owned)
        .to_vec()
}

/// The Python code of [`command`]. `lifetime`: how long the host may be silent, if not as long as `relay.py` says.
fn code(begin: &str, filter: Option<&[u8]>, way: bool, lifetime: Option<Duration>) -> String {
    let filter = filter.map(|filter| format!("'{}'", STANDARD.encode(filter)));
    let way = if way { ", way=True" } else { "" };
    let silence = lifetime.map(|time| format!("boot.relay.SILENCE = {}; ", time.as_secs_f64()));
    format!(
        "import sys; sys.path.insert(0, '/opt/pybench/lib'); \
         from pybench_runner import boot; {}boot.{begin}({}{way})",
        silence.unwrap_or_default(),
        filter.unwrap_or_default(),
    )
}

/// Whether a mount is needed even with an image.
fn is_ours(to: &Path) -> bool {
    to == Path::new("/opt/wheelhouse") || to.starts_with("/opt/pybench")
}

fn bind(from: &Path, to: &Path, writable: bool) -> Mount {
    Mount::Bind {
        from: from.to_owned(),
        to: to.to_owned(),
        writable,
    }
}

/// Folder of the proxy socket inside (`python/way.py`).
const PROXY_SOCKET_FOLDER: &str = "/opt/door";

/// Mount points that every root folder has, used or not.
pub(super) const MOUNT_POINTS: [&str; 8] = [
    "proc",
    "dev",
    "sys",
    "tmp",
    "etc/ssl/certs",
    "workspace",
    "opt/wheelhouse",
    "opt/door",
];

/// Creates a root folder with all mount points and links.
pub(super) fn mount_points(root: &Path, mount_spec: &MountSpec) -> io::Result<()> {
    let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    for folder in MOUNT_POINTS {
        fs::create_dir_all(root.join(folder))?;
    }
    // `runsc` mounts everything into this folder first, including caches below `/tmp`.
    let caches = mount_spec
        .caches
        .iter()
        .map(|(_, to)| (Path::new(""), to.as_path()));
    let binds = mount_spec
        .binds
        .iter()
        .map(|(from, to)| (from.as_path(), to.as_path()));
    for (from, to) in binds.chain(caches) {
        let to = inside(to);
        if from.is_dir() {
            fs::create_dir_all(&to)?;
        } else {
            fs::create_dir_all(to.parent().unwrap_or(root))?;
            File::options().append(true).create(true).open(&to)?;
        }
    }
    for (target, path) in &mount_spec.links {
        match std::os::unix::fs::symlink(target, inside(path)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_knows_how_long_its_host_may_be_silent() {
        let usual = code("hold", None, false, None);
        assert!(usual.ends_with("import boot; boot.hold()"), "{usual}");
        let lifetime = Some(Duration::from_millis(1_500));
        let short = code("attached", Some(b"f"), true, lifetime);
        let end = "import boot; boot.relay.SILENCE = 1.5; boot.attached('Zg==', way=True)";
        assert!(short.ends_with(end), "{short}");
    }
}
