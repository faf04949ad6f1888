//! Exit codes and the errors of runs.

/// What a process says with its exit code; documented in `docs/exit-codes.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Everything asked for was done.
    Success = 0,
    /// A bug or an unforeseen failure of ours.
    Internal = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A recipe, template or other file given by the user is wrong.
    BadInput = 3,
    /// The machine lacks something (sandbox, Python environment, disk space).
    Environment = 4,
    /// An endpoint could not be used (key refused, unreachable to the end).
    Endpoint = 5,
    /// A budget was used up; the same command goes on once it is raised.
    Budget = 6,
    /// The run ended, but some units failed or fewer rows than asked for were accepted.
    Incomplete = 7,
    /// Another process holds the run folder, or it was made by another recipe.
    Conflict = 8,
    /// Ctrl-C; the same command goes on.
    Interrupted = 130,
}

impl ExitCode {
    /// Every code.
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

/// Errors of runs. [`RunError::exit_code`] says which exit code each has.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file given by the user is wrong: file, line and way out are in the text.
    #[error("{0}")]
    BadInput(String),
    /// The machine lacks something.
    #[error("{0}")]
    Environment(String),
    /// An endpoint cannot be used.
    #[error("{0}")]
    Endpoint(String),
    /// A budget is used up.
    #[error("{0}")]
    Budget(String),
    /// Some units failed, or fewer rows than asked for were accepted.
    #[error("{0}")]
    Incomplete(String),
    /// Another process holds the folder, or another recipe made it.
    #[error("{0}")]
    Conflict(String),
    /// A bug or an unforeseen failure of ours.
    #[error("{0}")]
    Internal(String),
    /// Ctrl-C.
    #[error("interrupted; the same command goes on where it stopped")]
    Interrupted,
    /// Reading or writing failed.
    #[error("{context}: {source}")]
    Io {
        /// What was tried, with the path.
        context: String,
        /// The system's word.
        source: std::io::Error,
    },
    /// The journal failed.
    #[error("the journal failed: {}{}", .0, way_out(.0))]
    Journal(#[from] rusqlite::Error),
    /// A record of the journal or an artefact does not parse.
    #[error("a record of the run does not parse: {0}")]
    Record(#[from] serde_json::Error),
}

impl RunError {
    /// Wraps an I/O error with what was tried.
    pub fn io(context: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let context = context.into();
        move |source| Self::Io { context, source }
    }

    /// The exit code this error ends a process with.
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
            Self::Journal(error) if lacks_machine(error) => ExitCode::Environment,
            Self::Internal(_) | Self::Io { .. } | Self::Journal(_) | Self::Record(_) => {
                ExitCode::Internal
            }
        }
    }
}

/// Whether SQLite met a full, unwritable or failing disk rather than a bug of ours.
fn lacks_machine(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::*;
    matches!(
        error.sqlite_error_code(),
        Some(DiskFull | ReadOnly | PermissionDenied | CannotOpen | SystemIoFailure)
    )
}

fn way_out(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::DiskFull) => {
            "; free some space on the disk of the run folder, the same command then goes on"
        }
        _ if lacks_machine(error) => "; is the run folder on a writable disk?",
        _ => "",
    }
}
