//! What a session sees of the file system and finds in its environment, the same in every tier.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::SessionSpec;
use super::environment::Environment;

/// The read-only part of a session's world, and its variables.
#[derive(Clone, Debug, Serialize)]
pub(super) struct View {
    /// Host path → path inside, read-only. All exist.
    pub(super) binds: Vec<(PathBuf, PathBuf)>,
    /// Target → path inside.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// What set-up has prepared of `/tmp`: path below [`View::binds`] inside → path inside.
    pub(super) caches: Vec<(PathBuf, PathBuf)>,
    /// Folders of `/tmp` that are there from the beginning.
    pub(super) temporary: Vec<&'static str>,
    /// The whole environment of a session; the host's own stays outside.
    pub(super) variables: Vec<(&'static str, &'static str)>,
}

impl View {
    /// The view of an environment, with a local folder of wheels to install from and a way out, or without.
    pub(super) fn new(environment: &Environment, wheelhouse: Option<&Path>, network: bool) -> Self {
        let mut view = Self {
            binds: Vec::new(),
            links: Vec::new(),
            caches: caches(&environment.root),
            temporary: vec!["/tmp/matplotlib"],
            variables: VARIABLES.to_vec(),
        };
        view.system();
        if !environment.base.starts_with("/usr") {
            view.bind(&environment.base, &environment.base);
        }
        view.bind(&environment.root, ENVIRONMENT);
        view.bind(&environment.runner, "/opt/pybench");
        for name in ["passwd", "group", "hosts"] {
            let path = environment.runner.join("etc").join(name);
            view.bind(path, Path::new("/etc").join(name));
        }
        view.packages(wheelhouse, network);
        view
    }

    /// What a session of that kind sees.
    pub(super) fn of(environment: &Environment, spec: &SessionSpec) -> Self {
        let network = spec.network.is_some();
        Self::new(environment, spec.wheelhouse.as_deref(), network)
    }

    /// What cells install packages from, and how they reach it.
    fn packages(&mut self, wheelhouse: Option<&Path>, network: bool) {
        if wheelhouse.is_none() && !network {
            self.variables.extend(WITHOUT_PACKAGES);
            return;
        }
        self.temporary.push("/tmp/packages"); // or Python would not look again
        self.variables.extend(WITH_PACKAGES);
        if let Some(folder) = wheelhouse {
            self.bind(folder, "/opt/wheelhouse");
            self.variables.push(("PIP_FIND_LINKS", "/opt/wheelhouse"));
        }
        if network {
            self.bind("/etc/ssl/certs", "/etc/ssl/certs"); // whom to trust
            self.variables.extend(WITH_NETWORK);
        } else {
            self.variables.push(("PIP_NO_INDEX", "1"));
        }
    }

    /// Programs and libraries.
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

    fn bind(&mut self, from: impl Into<PathBuf>, to: impl Into<PathBuf>) {
        let from = from.into();
        if from.exists() {
            self.binds.push((from, to.into()));
        }
    }
}

/// Where the environment lies inside.
const ENVIRONMENT: &str = "/opt/env";

/// jieba's dictionary and matplotlib's font list, which would be made in each session otherwise.
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
    // One thread each: sessions are many, cores are few, and sums come out the same every time.
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

/// The host's proxy, on the session's loopback (`network::PORT`). What a session serves itself it finds
/// as `localhost`; 127.0.0.1 is the host's where the list has it.
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
    #[test]
    fn the_proxy_is_where_sessions_look() {
        let port = super::super::network::PORT;
        assert_eq!(super::PROXY, format!("http://127.0.0.1:{port}"));
    }
}
