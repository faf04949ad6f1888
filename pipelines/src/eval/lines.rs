//! What is wrong with a file that is read line by line.

use std::path::{Path, PathBuf};

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// A line is wrong.
    #[error("{}, line {line}: {problem}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// The whole of it is not what it should be.
    #[error("{}: {problem}", path.display())]
    Whole {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl FileError {
    /// What the file system said of that file.
    pub(super) fn io(path: &Path) -> impl Fn(std::io::Error) -> Self + Copy + '_ {
        move |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    /// A wrong line of that file.
    pub(super) fn line(path: &Path) -> impl Fn((usize, String)) -> Self + '_ {
        move |(line, problem)| Self::Line {
            path: path.to_owned(),
            line,
            problem,
        }
    }
}
