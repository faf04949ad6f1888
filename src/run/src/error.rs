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
    /// The server that holds files did not answer, or refused a request. Another attempt may succeed.
    #[error("{0}")]
    Store(String),
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
    /// Another worker has begun the unit again, so that this one's writes are refused.
    #[error("{0}")]
    LeaseLost(String),
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
    /// PostgreSQL failed to read or write the journal.
    #[error("cannot access the journal of the run in PostgreSQL: {}", database_error(.0))]
    Database(#[from] tokio_postgres::Error),
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
            Self::Environment(_) | Self::Store(_) => ExitCode::Environment,
            Self::Endpoint(_) => ExitCode::Endpoint,
            Self::Budget(_) => ExitCode::Budget,
            Self::Incomplete(_) => ExitCode::Incomplete,
            Self::Conflict(_) => ExitCode::Conflict,
            Self::Interrupted => ExitCode::Interrupted,
            Self::Io { source, .. } => ExitCode::of_io(source),
            Self::Journal(error) if is_disk_error(error) => ExitCode::Environment,
            Self::Journal(error) if is_damage(error) => ExitCode::BadInput,
            Self::Database(error) if !is_statement_error(error) => ExitCode::Environment,
            Self::Record(_) => ExitCode::BadInput,
            Self::Internal(_) | Self::LeaseLost(_) | Self::Journal(_) | Self::Database(_) => {
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

/// Whether PostgreSQL refused a statement, rather than being out of reach, full, or closed to this user.
fn is_statement_error(error: &tokio_postgres::Error) -> bool {
    // Classes: connection, password, database name, resources, operator's intervention, system.
    let of_environment = ["08", "28", "3D", "53", "57", "58"];
    error
        .code()
        .is_some_and(|code| !of_environment.contains(&&code.code()[..2]))
}

/// The message of the server, or of the connection.
fn database_error(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(answer) => answer.message().to_owned(),
        None => error.to_string(),
    }
}
