//! Errors of files that are read line by line.

use std::path::{Path, PathBuf};

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{}: {source}", path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    /// A line is invalid.
    #[error("{}, line {line}: {problem}", path.display())]
    Line {
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        problem: String,
    },
}

impl FileError {
    /// Converts I/O errors on `path`.
    pub(super) fn io(path: &Path) -> impl Fn(std::io::Error) -> Self + Copy + '_ {
        move |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    /// Converts errors on a line of `path`.
    pub(super) fn line(path: &Path) -> impl Fn((usize, String)) -> Self + '_ {
        move |(line, problem)| Self::Line {
            path: path.to_owned(),
            line,
            problem,
        }
    }
}
