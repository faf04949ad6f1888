//! Exit codes and errors of runs.

/// Exit codes of all commands, documented in `docs/exit-codes.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Everything requested was done.
    Success = 0,
    /// A bug or an unexpected failure in pybench.
    Internal = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A recipe, template or other input file is wrong.
    BadInput = 3,
    /// The machine lacks a requirement (sandbox, Python environment, disk space).
    Environment = 4,
    /// An endpoint could not be used (API key refused, not reachable after all retries).
    Endpoint = 5,
    /// A budget is used up; raise it and run the same command again to continue.
    Budget = 6,
    /// The run ended, but some units failed or fewer rows were accepted than the recipe requires.
    Incomplete = 7,
    /// Another process uses the run folder, or it belongs to a different recipe.
    Conflict = 8,
    /// Ctrl-C; run the same command again to continue.
    Interrupted = 130,
}

impl ExitCode {
    pub const ALL: [Self; 10] = [
        Self::Success,
        Self::Internal,
        Self::Usage,
        Self::BadInput,
        Self::Environment,
        Self::Endpoint,
        Self::Budget,
        Self::Incomplete,
        Self::Conflict,
        Self::Interrupted,
    ];
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code as u8)
    }
}

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
    #[error("a record in the run folder cannot be parsed: {0}")]
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
            Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                ExitCode::Environment
            }
            Self::Journal(error) if is_disk_error(error) => ExitCode::Environment,
            Self::Internal(_) | Self::Io { .. } | Self::Journal(_) | Self::Record(_) => {
                ExitCode::Internal
            }
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

fn remedy(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => {
            "; free some space on the disk of the run folder and run the same command again"
        }
        _ if is_disk_error(error) => "; check that the run folder is on a writable disk",
        _ => "",
    }
}
