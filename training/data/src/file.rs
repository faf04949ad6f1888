//! Files of a bounded size.

use std::path::{Path, PathBuf};

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
            // The file is too large.
            std::io::ErrorKind::Other => ExitCode::BadInput,
            _ => ExitCode::of_io(&self.error),
        }
    }
}

/// Reads a file of at most `max` bytes.
///
/// # Errors
/// I/O errors, also for a larger file.
pub fn read_bounded(path: &Path, max: u64) -> Result<Vec<u8>, FileError> {
    let failed = |error| FileError {
        path: path.into(),
        error,
    };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > max {
        let text = format!("{size} bytes, more than the {max} allowed");
        return Err(failed(std::io::Error::other(text)));
    }
    std::fs::read(path).map_err(failed)
}
