//! Files on other machines (`s3://`, `gs://`, `az://`, `hf://`), which `pybench run fetch` downloads into the machine's cache: this
//! crate has no client of buckets.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pybench_types::exit_code::ExitCode;
use thiserror::Error;

/// What addresses begin with.
const SCHEMES: [&str; 4] = ["s3://", "gs://", "az://", "hf://"];

/// Why a file or folder was not downloaded.
#[derive(Debug, Error)]
pub enum RemoteError {
    #[error(
        "{address} is downloaded by {program}, which cannot be started: {error}; install pybench beside pybench-train, or give the \
         path of a copy"
    )]
    Start {
        address: String,
        program: PathBuf,
        error: std::io::Error,
    },
    /// The program has said why.
    #[error("{address} was not downloaded")]
    Failed { address: String, code: ExitCode },
}

impl RemoteError {
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Start { .. } => ExitCode::Environment,
            Self::Failed { code, .. } => *code,
        }
    }
}

/// The copy of the file or folder that an address names; `None` if the path is one of this machine. What is in the cache is not
/// downloaded again.
pub fn fetch_remote(path: &Path) -> Result<Option<PathBuf>, RemoteError> {
    match is_address(path) {
        true => fetch_with(&program(), &path.to_string_lossy()).map(Some),
        false => Ok(None),
    }
}

/// Whether a path is an address in a bucket or on the Hub.
pub fn is_address(path: &Path) -> bool {
    let text = path.to_string_lossy();
    SCHEMES.iter().any(|scheme| text.starts_with(scheme))
}

fn fetch_with(program: &Path, address: &str) -> Result<PathBuf, RemoteError> {
    let mut command = Command::new(program);
    // Progress and errors appear on standard error.
    command
        .args(["run", "fetch", address])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let output = command.output().map_err(|error| RemoteError::Start {
        address: address.to_owned(),
        program: program.to_owned(),
        error,
    })?;
    let copy = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() && !copy.is_empty() {
        return Ok(copy.into());
    }
    let code = output.status.code().and_then(ExitCode::from_number);
    let code = code.filter(|code| *code != ExitCode::Success);
    Err(RemoteError::Failed {
        address: address.to_owned(),
        code: code.unwrap_or(ExitCode::Internal),
    })
}

/// `pybench` beside this program, or where the shell finds it.
fn program() -> PathBuf {
    let own = std::env::current_exe().ok();
    let beside = own.map(|own| own.with_file_name("pybench"));
    beside
        .filter(|program| program.is_file())
        .unwrap_or_else(|| "pybench".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_this_machine_are_left_alone() {
        for path in ["data", "/s3/data", "owner/name", "s3:/bucket"] {
            assert_eq!(fetch_remote(Path::new(path)).unwrap(), None, "{path}");
        }
    }

    #[test]
    fn the_program_prints_the_path_of_the_copy() {
        let copy = fetch_with(Path::new("echo"), "s3://b/x").unwrap();
        assert_eq!(copy, Path::new("run fetch s3://b/x"));
        let failed = fetch_with(Path::new("false"), "s3://b/x").unwrap_err();
        assert_eq!(failed.exit_code(), ExitCode::Internal);
        let missing = fetch_with(Path::new("/nowhere/pybench"), "s3://b/x").unwrap_err();
        assert_eq!(missing.exit_code(), ExitCode::Environment);
        assert!(
            missing.to_string().contains("/nowhere/pybench"),
            "{missing}"
        );
    }
}
