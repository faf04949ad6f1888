//! The file system and the environment variables of a session, the same in every tier.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::SessionSpec;
use super::environment::{EMPTY, Environment};

/// The read-only mounts of a session, and its environment variables.
#[derive(Clone, Debug, Serialize)]
pub struct MountSpec {
    /// Host path → path inside, read-only. All host paths exist and have no symbolic links: a jail resolves them below
    /// another root, where an absolute link leads elsewhere.
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// Symbolic links: target → path inside.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Caches that setup has prepared for `/tmp`: path inside, below one of [`MountSpec::binds`] → path inside.
    pub caches: Vec<(PathBuf, PathBuf)>,
    /// Folders to create in `/tmp`.
    pub(super) temporary: Vec<&'static str>,
    /// All environment variables of a session; none are inherited from the host.
    pub variables: Vec<(&'static str, &'static str)>,
}

impl MountSpec {
    /// The mounts of an environment, optionally with a local folder of wheels and with a network proxy.
    pub fn new(environment: &Environment, wheelhouse: Option<&Path>, network: bool) -> Self {
        let mut mounts = Self {
            binds: Vec::new(),
            links: Vec::new(),
            caches: caches(&environment.root),
            temporary: vec!["/tmp/matplotlib"],
            variables: VARIABLES.to_vec(),
        };
        mounts.system();
        mounts.hide_local(environment);
        if !environment.base.starts_with("/usr") {
            mounts.bind(&environment.base, &environment.base);
        }
        mounts.bind(&environment.root, ENVIRONMENT);
        mounts.bind(&environment.runner, "/opt/pybench");
        for name in ["passwd", "group", "hosts"] {
            let path = environment.runner.join("etc").join(name);
            mounts.bind(path, Path::new("/etc").join(name));
        }
        mounts.packages(wheelhouse, network);
        mounts
    }

    pub fn for_session(environment: &Environment, spec: &SessionSpec) -> Self {
        let network = spec.network.is_some();
        Self::new(environment, spec.wheelhouse.as_deref(), network)
    }

    /// Sets up `pip`: sources of packages and how to reach them.
    fn packages(&mut self, wheelhouse: Option<&Path>, network: bool) {
        if wheelhouse.is_none() && !network {
            self.variables.extend(WITHOUT_PACKAGES);
            return;
        }
        self.temporary.push("/tmp/packages"); // must exist when Python starts, or it is dropped from sys.path
        self.variables.extend(WITH_PACKAGES);
        if let Some(folder) = wheelhouse {
            self.bind(folder, "/opt/wheelhouse");
            self.variables.push(("PIP_FIND_LINKS", "/opt/wheelhouse"));
        }
        if network {
            self.bind("/etc/ssl/certs", "/etc/ssl/certs"); // trusted CA certificates
            self.variables.extend(WITH_NETWORK);
        } else {
            self.variables.push(("PIP_NO_INDEX", "1"));
        }
    }

    /// Mounts programs and libraries of the system.
    fn system(&mut self) {
        self.bind("/usr", "/usr");
        for folder in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] {
            match std::fs::read_link(folder) {
                Ok(target) => self.links.push((target, folder.into())),
                Err(_) => self.bind(folder, folder),
            }
        }
        for path in ["/etc/ld.so.cache", "/etc/alternatives", "/etc/fonts"] {
            self.bind(path, path);
        }
    }

    /// Hides what was installed by hand on this machine, unless the Python of sessions is there.
    fn hide_local(&mut self, environment: &Environment) {
        let local = Path::new("/usr/local");
        if local.is_dir() && !local.is_symlink() && !environment.base.starts_with(local) {
            self.bind(environment.runner.join(EMPTY), local);
        }
    }

    fn bind(&mut self, from: impl Into<PathBuf>, to: impl Into<PathBuf>) {
        if let Ok(from) = from.into().canonicalize() {
            self.binds.push((from, to.into()));
        }
    }
}

/// Path of the Python environment inside.
const ENVIRONMENT: &str = "/opt/env";

/// jieba's dictionary and matplotlib's font list, which each session would otherwise build.
fn caches(root: &Path) -> Vec<(PathBuf, PathBuf)> {
    let inside = Path::new(ENVIRONMENT).join("caches");
    let mut found = Vec::new();
    if root.join("caches/jieba.cache").exists() {
        found.push((inside.join("jieba.cache"), "/tmp/jieba.cache".into()));
    }
    let entries = std::fs::read_dir(root.join("caches/matplotlib"));
    let mut names: Vec<_> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    names.sort();
    found.extend(names.into_iter().map(|name| {
        let to = Path::new("/tmp/matplotlib").join(&name);
        (inside.join("matplotlib").join(name), to)
    }));
    found
}

const VARIABLES: &[(&str, &str)] = &[
    ("HOME", "/tmp"),
    ("TMPDIR", "/tmp"),
    ("USER", "agent"),
    ("LOGNAME", "agent"),
    ("SHELL", "/bin/sh"),
    ("LANG", "C.UTF-8"),
    ("TZ", "UTC"),
    ("TERM", "dumb"),
    ("PYTHONHASHSEED", "0"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("IPYTHONDIR", "/tmp/.ipython"),
    ("MPLCONFIGDIR", "/tmp/matplotlib"),
    ("MPLBACKEND", "module://matplotlib_inline.backend_inline"),
    ("NUMBA_CACHE_DIR", "/tmp/numba"),
    // One thread per library: there are more sessions than cores, and results become deterministic.
    ("OMP_NUM_THREADS", "1"),
    ("OPENBLAS_NUM_THREADS", "1"),
    ("MKL_NUM_THREADS", "1"),
    ("NUMEXPR_NUM_THREADS", "1"),
    ("NUMBA_NUM_THREADS", "1"),
    ("PWD", "/workspace"),
];

const WITHOUT_PACKAGES: [(&str, &str); 2] = [
    ("PATH", "/opt/pybench/bin:/opt/env/bin:/usr/bin:/bin"),
    ("PYTHONPATH", "/opt/pybench/pip"),
];

const WITH_PACKAGES: [(&str, &str); 5] = [
    ("PATH", "/opt/env/bin:/usr/bin:/bin"),
    ("PYTHONPATH", "/tmp/packages"),
    ("PIP_TARGET", "/tmp/packages"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("PIP_ROOT_USER_ACTION", "ignore"),
];

/// The host's proxy, on the session's loopback (`network::PORT`). `localhost` bypasses the proxy and reaches
/// the session's own servers; `127.0.0.1` goes through the proxy, to the host if the allowlist has it.
const WITH_NETWORK: [(&str, &str); 6] = [
    ("HTTP_PROXY", PROXY),
    ("HTTPS_PROXY", PROXY),
    ("http_proxy", PROXY),
    ("https_proxy", PROXY),
    ("NO_PROXY", "localhost"),
    ("no_proxy", "localhost"),
];

const PROXY: &str = "http://127.0.0.1:3128";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_environment_behind_a_link_is_mounted_from_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap().join("real");
        std::fs::create_dir_all(real.join("env")).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let environment = Environment {
            root: link.join("env"),
            base: "/usr".into(),
            runner: link.join("runner"),
            cache: link,
            digest: String::new(),
        };
        let mounts = MountSpec::new(&environment, None, false);
        let of_env = mounts
            .binds
            .iter()
            .find(|(_, to)| to == Path::new(ENVIRONMENT));
        assert_eq!(of_env.unwrap().0, real.join("env"));
    }

    #[test]
    fn the_proxy_variable_has_the_port_of_the_proxy() {
        let port = super::super::network::PORT;
        assert_eq!(super::PROXY, format!("http://127.0.0.1:{port}"));
    }
}
