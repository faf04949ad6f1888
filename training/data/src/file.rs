//! Files of a bounded size.

use std::path::{Path, PathBuf};

use pybench_files::read_regular;
use pybench_types::exit_code::ExitCode;
use thiserror::Error;

/// A file cannot be read, or is too large.
#[derive(Debug, Error)]
#[error("{path}: {error}")]
pub struct FileError {
    pub path: PathBuf,
    pub error: std::io::Error,
}

impl FileError {
    pub fn exit_code(&self) -> ExitCode {
        match self.error.kind() {
            // The file is too large, or none.
            std::io::ErrorKind::Other => ExitCode::BadInput,
            _ => ExitCode::of_io(&self.error),
        }
    }
}

/// Reads a regular file of at most `max` bytes.
///
/// # Errors
/// As [`read_regular`], with the path.
pub fn read_bounded(path: &Path, max: u64) -> Result<Vec<u8>, FileError> {
    read_regular(path, max).map_err(|error| FileError {
        path: path.into(),
        error,
    })
}
