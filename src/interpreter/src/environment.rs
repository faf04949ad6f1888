//! Finds the Python environment that `pybench setup` made, and installs the runner.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use super::InterpreterError;

/// The locked requirements; their digest names the environment.
const LOCK: &str = include_str!("../python/requirements.lock");

/// The files of the runner: path, text.
const RUNNER: &[(&str, &str)] = &[
    (
        "lib/pybench_runner/__init__.py",
        include_str!("../python/__init__.py"),
    ),
    (
        "lib/pybench_runner/runner.py",
        include_str!("../python/runner.py"),
    ),
    (
        "lib/pybench_runner/shell.py",
        include_str!("../python/shell.py"),
    ),
    (
        "lib/pybench_runner/hooks.py",
        include_str!("../python/hooks.py"),
    ),
    (
        "lib/pybench_runner/dates.py",
        include_str!("../python/dates.py"),
    ),
    (
        "lib/pybench_runner/charts.py",
        include_str!("../python/charts.py"),
    ),
    (
        "lib/pybench_runner/clouds.py",
        include_str!("../python/clouds.py"),
    ),
    (
        "lib/pybench_runner/wire.py",
        include_str!("../python/wire.py"),
    ),
    (
        "lib/pybench_runner/server.py",
        include_str!("../python/server.py"),
    ),
    (
        "lib/pybench_runner/view.py",
        include_str!("../python/view.py"),
    ),
    (
        "lib/pybench_runner/jail.py",
        include_str!("../python/jail.py"),
    ),
    (
        "lib/pybench_runner/boot.py",
        include_str!("../python/boot.py"),
    ),
    (
        "lib/pybench_runner/way.py",
        include_str!("../python/way.py"),
    ),
    (
        "lib/pybench_runner/relay.py",
        include_str!("../python/relay.py"),
    ),
    (
        "lib/pybench_runner/syscalls.py",
        include_str!("../python/syscalls.py"),
    ),
    (
        "pip/pip/__init__.py",
        include_str!("../python/path/pip/__init__.py"),
    ),
    (
        "pip/pip/__main__.py",
        include_str!("../python/path/pip/__main__.py"),
    ),
    ("bin/pip", include_str!("../python/bin/pip")),
    ("bin/pip3", include_str!("../python/bin/pip")),
    ("etc/passwd", "agent:x:1000:1000::/tmp:/bin/sh\n"),
    ("etc/group", "agent:x:1000:\n"),
    ("etc/hosts", "127.0.0.1 localhost sandbox\n"),
];

/// An empty folder beside the runner's files.
pub(super) const EMPTY: &str = "empty";

/// The locked Python requirements of sessions, with hashes.
pub const fn requirements() -> &'static str {
    LOCK
}

/// The modules that record the contents of charts when they are saved, for programs that run Python
/// without our runner: file name → source of a package that `sitecustomize` can import.
pub fn recorder() -> impl Iterator<Item = (&'static str, &'static str)> {
    const PARTS: [&str; 3] = ["hooks.py", "charts.py", "clouds.py"];
    RUNNER.iter().filter_map(|(path, source)| {
        let name = path.strip_prefix("lib/pybench_runner/")?;
        PARTS.contains(&name).then_some((name, *source))
    })
}

/// `pybench.json`, which `prepare.py` writes when an environment is complete.
#[derive(Debug, Deserialize)]
struct EnvironmentInfo {
    python: String,
    base: PathBuf,
    lock: String,
}

/// A complete Python environment.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Folder of the virtual environment.
    pub root: PathBuf,
    /// Prefix of its base interpreter (`/usr` for the system's Python).
    pub base: PathBuf,
    /// Folder of the installed runner.
    pub runner: PathBuf,
    /// The shared cache folder.
    pub cache: PathBuf,
    /// Versions of the interpreter, the locked requirements and the runner.
    pub digest: String,
}

impl Environment {
    /// Finds the environment: `PYBENCH_ENV`, or the one in the cache for this program's locked requirements.
    pub fn find() -> Result<Self, InterpreterError> {
        let cache = cache_dir()?;
        let root = match std::env::var_os("PYBENCH_ENV") {
            Some(given) => PathBuf::from(given),
            None => find_in(&cache.join("envs"), &lock_digest())?,
        };
        let info = read_info(&root)?;
        let runner_digest = runner_digest();
        let runner = install_runner(&cache, &runner_digest, &root).map_err(|source| {
            InterpreterError::Unavailable(format!(
                "the runner cannot be written to {}: {source}. Set PYBENCH_CACHE to a writable folder",
                cache.display()
            ))
        })?;
        Ok(Self {
            digest: format!(
                "python-{}+lock-{}+runner-{runner_digest}",
                info.python, info.lock
            ),
            base: info.base,
            root,
            runner,
            cache,
        })
    }
}

/// The cache folder that `pybench setup` uses.
fn cache_dir() -> Result<PathBuf, InterpreterError> {
    let variable = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(given) = variable("PYBENCH_CACHE") {
        return std::path::absolute(given).map_err(|source| InterpreterError::Io {
            context: "PYBENCH_CACHE".to_owned(),
            source,
        });
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/cache/pybench"));
    }
    let base = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    base.map(|base| base.join("pybench")).ok_or_else(|| {
        InterpreterError::Unavailable(
            "neither PYBENCH_CACHE nor HOME is set: set PYBENCH_CACHE to a writable folder"
                .to_owned(),
        )
    })
}

fn lock_digest() -> String {
    short(&Sha256::digest(LOCK))
}

fn short(bytes: &[u8]) -> String {
    bytes[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The newest complete environment whose folder name starts with the digest of the locked requirements.
fn find_in(envs: &Path, lock: &str) -> Result<PathBuf, InterpreterError> {
    let mut found: Vec<PathBuf> = fs::read_dir(envs)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(lock))
        })
        .filter(|path| path.join("pybench.json").exists())
        .collect();
    found.sort();
    found.pop().ok_or_else(|| {
        InterpreterError::Unavailable(format!(
            "there is no Python environment {lock} in {}. Create it with: pybench setup",
            envs.display()
        ))
    })
}

fn read_info(root: &Path) -> Result<EnvironmentInfo, InterpreterError> {
    let path = root.join("pybench.json");
    let text = fs::read_to_string(&path).map_err(|error| {
        InterpreterError::Unavailable(format!(
            "{}: {error}. Create the environment with: pybench setup",
            path.display()
        ))
    })?;
    serde_json::from_str(&text).map_err(|error| {
        InterpreterError::Unavailable(format!(
            "{}: {error}. Delete {} and run: pybench setup",
            path.display(),
            root.display()
        ))
    })
}

fn runner_digest() -> String {
    let mut hasher = blake3::Hasher::new();
    for (path, text) in RUNNER {
        hasher
            .update(&(path.len() as u64).to_le_bytes())
            .update(path.as_bytes());
        hasher
            .update(&(text.len() as u64).to_le_bytes())
            .update(text.as_bytes());
    }
    short(hasher.finalize().as_bytes())
}

/// Installs the runner's files, compiled, so that the sandbox's user can read them; once per version.
fn install_runner(cache: &Path, digest: &str, environment: &Path) -> io::Result<PathBuf> {
    let folder = cache.join("runner").join(digest);
    if folder.exists() {
        return Ok(folder);
    }
    fs::create_dir_all(cache.join("runner"))?;
    let building = tempfile::Builder::new()
        .prefix(".building")
        .tempdir_in(cache.join("runner"))?;
    for (path, text) in RUNNER {
        let path = building.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(building.path()))?;
        fs::write(&path, text)?;
    }
    fs::create_dir(building.path().join(EMPTY))?;
    // Byte code has the path inside the sandbox. If compiling fails, sessions start a little more slowly.
    let _ = Command::new(environment.join("bin/python"))
        .args(["-I", "-m", "compileall", "-q", "-s"])
        .arg(building.path())
        .args(["-p", "/opt/pybench"])
        .arg(building.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    make_world_readable(building.path())?;
    match fs::rename(building.path(), &folder) {
        // Another process has installed the same files in the meantime.
        Err(_) if folder.exists() => {}
        result => result?,
    }
    Ok(folder)
}

/// Makes everything world-readable and `bin/` executable, independent of the umask.
fn make_world_readable(path: &Path) -> io::Result<()> {
    let executable = path.is_dir() || path.parent().is_some_and(|parent| parent.ends_with("bin"));
    fs::set_permissions(
        path,
        fs::Permissions::from_mode(if executable { 0o755 } else { 0o644 }),
    )?;
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            make_world_readable(&entry?.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_a_missing_environment_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("0011-3.11.2")).unwrap(); // incomplete: no pybench.json
        let error = find_in(folder.path(), "0011").unwrap_err();
        assert!(error.to_string().ends_with("pybench setup"), "{error}");
    }

    #[test]
    fn the_error_for_a_broken_pybench_json_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("pybench.json"), "{").unwrap();
        let error = read_info(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("pybench.json") && error.ends_with("pybench setup"),
            "{error}"
        );
    }

    #[test]
    fn the_runner_is_world_readable_and_installed_once() {
        let cache = tempfile::tempdir().unwrap();
        let no_python = cache.path().join("nothing");
        let folder = install_runner(cache.path(), "digest", &no_python).unwrap();
        for (path, text) in RUNNER {
            let path = folder.join(path);
            assert_eq!(&fs::read_to_string(&path).unwrap(), text);
            let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
            assert_eq!(
                mode,
                if path.parent().unwrap().ends_with("bin") {
                    0o755
                } else {
                    0o644
                }
            );
        }
        assert_eq!(
            install_runner(cache.path(), "digest", &no_python).unwrap(),
            folder
        );
        assert_eq!(
            fs::read_dir(cache.path().join("runner")).unwrap().count(),
            1
        );
    }
}
