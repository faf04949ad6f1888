//! The cache directory that all runs on this machine share.

use std::path::PathBuf;

/// The folder for downloads and environments: `$PYBENCH_CACHE`, else `/var/cache/pybench` for root, else
/// `$XDG_CACHE_HOME/pybench`, else `~/.cache/pybench`.
pub fn default_cache_dir() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = variable("PYBENCH_CACHE") {
        return path.into();
    }
    if rustix::process::geteuid().is_root() {
        return "/var/cache/pybench".into();
    }
    if let Some(path) = variable("XDG_CACHE_HOME") {
        return PathBuf::from(path).join("pybench");
    }
    let home = variable("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
    home.join(".cache/pybench")
}
