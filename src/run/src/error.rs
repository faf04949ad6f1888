//! Errors of runs.

use pybench_types::exit_code::ExitCode;

/// Errors of runs; [`RunError::exit_code`] maps each to an exit code.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An input file is wrong; the text names file, line and remedy.
    #[error("{0}")]
    BadInput(String),
    /// The machine lacks a requirement.
    #[error("{0}")]
    Environment(String),
    /// An endpoint cannot be used.
    #[error("{0}")]
    Endpoint(String),
    /// A budget is used up.
    #[error("{0}")]
    Budget(String),
    /// Some units failed, or too few rows were accepted.
    #[error("{0}")]
    Incomplete(String),
    /// Another process uses the run folder, or it belongs to a different recipe.
    #[error("{0}")]
    Conflict(String),
    /// A bug or an unexpected failure in pybench.
    #[error("{0}")]
    Internal(String),
    /// Ctrl-C.
    #[error("interrupted; run the same command again to continue")]
    Interrupted,
    /// Reading or writing failed.
    #[error("{context}: {source}")]
    Io {
        /// What was attempted, with the path.
        context: String,
        source: std::io::Error,
    },
    /// SQLite failed to read or write the journal.
    #[error("cannot access the journal of the run: {}{}", .0, remedy(.0))]
    Journal(#[from] rusqlite::Error),
    /// A record of the journal or of an artifact cannot be parsed.
    #[error(
        "a record in the run folder cannot be parsed: {0}; restore the folder from a backup, or start a new run with --run NAME"
    )]
    Record(#[from] serde_json::Error),
}

impl RunError {
    /// Adds to an I/O error what was attempted.
    pub fn io(context: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let context = context.into();
        move |source| Self::Io { context, source }
    }

    /// The exit code of a process that ends with this error.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::BadInput(_) => ExitCode::BadInput,
            Self::Environment(_) => ExitCode::Environment,
            Self::Endpoint(_) => ExitCode::Endpoint,
            Self::Budget(_) => ExitCode::Budget,
            Self::Incomplete(_) => ExitCode::Incomplete,
            Self::Conflict(_) => ExitCode::Conflict,
            Self::Interrupted => ExitCode::Interrupted,
            Self::Io { source, .. } => ExitCode::of_io(source),
            Self::Journal(error) if is_disk_error(error) => ExitCode::Environment,
            Self::Journal(error) if is_damage(error) => ExitCode::BadInput,
            Self::Record(_) => ExitCode::BadInput,
            Self::Internal(_) | Self::Journal(_) => ExitCode::Internal,
        }
    }
}

/// Whether SQLite failed because the disk is full, read-only or broken, rather than because of a bug.
fn is_disk_error(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::*;
    matches!(
        error.sqlite_error_code(),
        Some(DiskFull | ReadOnly | PermissionDenied | CannotOpen | SystemIoFailure)
    )
}

/// Whether the file is not a journal, or not the one that was written.
fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::*;
    matches!(
        error.sqlite_error_code(),
        Some(NotADatabase | DatabaseCorrupt)
    )
}

fn remedy(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => {
            "; free some space on the disk of the run folder and run the same command again"
        }
        _ if is_disk_error(error) => "; check that the run folder is on a writable disk",
        _ if is_damage(error) => {
            "; journal.sqlite in the run folder is damaged: restore it from a backup, or start a new run with --run NAME"
        }
        _ => "",
    }
}
