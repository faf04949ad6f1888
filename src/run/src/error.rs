//! Errors of runs.

use pybench_types::exit_code::ExitCode;
use tokio_postgres::error::SqlState;

/// Errors of runs; [`RunError::exit_code`] maps each to an exit code.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An input file is wrong; the text names file, line and remedy.
    #[error("{0}")]
    BadInput(String),
    /// The machine lacks a requirement.
    #[error("{0}")]
    Environment(String),
    /// The server that holds files did not answer, or failed. Another attempt may succeed.
    #[error("{0}")]
    Store(String),
    /// The server that holds files refuses every request: a key, a permission or the bucket is missing.
    #[error("{0}")]
    StoreRefused(String),
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

    /// Whether the database of the journal or the store did not answer: what was being done is not at fault, and can be done
    /// again later.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Store(_) => true,
            Self::Journal(error) => {
                error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
            }
            Self::Database(error) => is_database_outage(error),
            _ => false,
        }
    }

    /// The exit code of a process that ends with this error.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::BadInput(_) => ExitCode::BadInput,
            Self::Environment(_) | Self::Store(_) | Self::StoreRefused(_) => ExitCode::Environment,
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
    // Classes: password, database name.
    let of_environment = ["28", "3D"];
    error.code().map(SqlState::code).is_some_and(|code| {
        !is_outage_code(code) && !of_environment.iter().any(|class| code.starts_with(class))
    })
}

/// Whether PostgreSQL is out of reach or of resources, or has given up a transaction for the sake of another one.
fn is_database_outage(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => is_outage_code(code.code()),
        None => is_connection_error(error),
    }
}

fn is_outage_code(code: &str) -> bool {
    // Connection, rolled back, resources, operator's intervention, system.
    let classes = ["08", "40", "53", "57", "58"];
    // A server that only reads, as after a failover; a lock that was not free in time.
    let codes = [
        SqlState::READ_ONLY_SQL_TRANSACTION,
        SqlState::LOCK_NOT_AVAILABLE,
    ];
    classes.iter().any(|class| code.starts_with(class))
        || codes.iter().any(|known| known.code() == code)
}

/// Whether the connection to the server failed or has ended.
pub(crate) fn is_connection_error(error: &tokio_postgres::Error) -> bool {
    error.is_closed()
        || std::error::Error::source(error).is_some_and(|cause| cause.is::<std::io::Error>())
}

/// The message of the server, or of the connection.
fn database_error(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(answer) => answer.message().to_owned(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    use tokio_postgres::{Config, NoTls};

    use super::*;

    /// The error of a connection to a server that answers the first message with these bytes, and ends the connection.
    async fn answered(answer: Vec<u8>) -> RunError {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            let read = client.read(&mut [0; 1024]).unwrap();
            assert!(read > 0);
            client.write_all(&answer).unwrap();
        });
        let error = connection_error(port).await;
        server.join().unwrap();
        error
    }

    async fn connection_error(port: u16) -> RunError {
        let mut config = Config::new();
        config.host("127.0.0.1").port(port).user("pybench");
        match config.connect(NoTls).await {
            Ok(_) => panic!("connected"),
            Err(error) => error.into(),
        }
    }

    /// A message of the protocol: its type, its length, its body.
    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap();
        [&[kind][..], &length.to_be_bytes(), body].concat()
    }

    async fn with_code(code: &str) -> RunError {
        let fields = format!("SERROR\0VERROR\0C{code}\0Mmessage\0\0");
        answered(message(b'E', fields.as_bytes())).await
    }

    #[tokio::test]
    async fn errors_of_postgresql_are_outages_if_waiting_helps() {
        for code in [
            "08006", "25006", "40001", "40P01", "53100", "53300", "55P03", "57P01", "57P03",
            "57014", "58030",
        ] {
            let error = with_code(code).await;
            assert!(error.is_outage(), "{code}: {error:?}");
            assert_eq!(error.exit_code(), ExitCode::Environment, "{code}");
        }
        for code in ["28P01", "28000", "3D000"] {
            let error = with_code(code).await;
            assert!(!error.is_outage(), "{code}: {error:?}");
            assert_eq!(error.exit_code(), ExitCode::Environment, "{code}");
        }
        for code in [
            "22P02", "23505", "25001", "42501", "42601", "42P01", "55000", "XX000",
        ] {
            let error = with_code(code).await;
            assert!(!error.is_outage(), "{code}: {error:?}");
            assert_eq!(error.exit_code(), ExitCode::Internal, "{code}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_fails_is_an_outage() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let refused = connection_error(port).await;
        assert!(refused.is_outage(), "{refused:?}");
        let ended = answered(Vec::new()).await;
        assert!(ended.is_outage(), "{ended:?}");
        // The server asks for a password, and there is none.
        let unknown = answered(message(b'R', &3_u32.to_be_bytes())).await;
        assert!(!unknown.is_outage(), "{unknown:?}");
    }

    #[test]
    fn a_store_that_refuses_is_no_outage() {
        let text = || "s3://b: 403".to_owned();
        assert!(RunError::Store(text()).is_outage());
        let refused = RunError::StoreRefused(text());
        assert!(!refused.is_outage());
        assert_eq!(refused.exit_code(), ExitCode::Environment);
    }
}
