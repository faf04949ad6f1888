//! Files of a bounded size.

use std::fs::File;
use std::io::Read;
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
            // The file is too large, or none.
            std::io::ErrorKind::Other => ExitCode::BadInput,
            _ => ExitCode::of_io(&self.error),
        }
    }
}

/// Reads a regular file of at most `max` bytes. Links are followed; devices and pipes are refused without waiting for
/// them.
///
/// # Errors
/// I/O errors, also for a larger file, and for what is not a regular file.
pub fn read_bounded(path: &Path, max: u64) -> Result<Vec<u8>, FileError> {
    let failed = |error| FileError {
        path: path.into(),
        error,
    };
    let refused = |text: String| Err(failed(std::io::Error::other(text)));
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return refused("not a regular file".to_owned());
    }
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    match bytes.len() as u64 > max {
        true => refused(format!("more than {max} bytes")),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_of_bounded_size_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        assert_eq!(read_bounded(&at("file"), 4).unwrap(), b"text");
        let error = read_bounded(&at("file"), 3).unwrap_err();
        assert_eq!(error.exit_code(), ExitCode::BadInput);
        assert!(error.to_string().ends_with("more than 3 bytes"), "{error}");
        let fifo = std::process::Command::new("mkfifo")
            .arg(at("fifo"))
            .status();
        assert!(fifo.unwrap().success());
        for (name, target) in [("zero", "/dev/zero"), ("pipe", "fifo"), ("folder", ".")] {
            std::os::unix::fs::symlink(target, at(name)).unwrap();
            let error = read_bounded(&at(name), 4).unwrap_err();
            assert_eq!(error.exit_code(), ExitCode::BadInput);
            assert!(error.to_string().ends_with("not a regular file"), "{error}");
        }
    }
}
