//! A connection to PostgreSQL that synchronous code uses, inside a runtime or not.
//!
//! A thread of its own drives the socket; the caller's thread sends a statement and sleeps until the result is there. It
//! never enters a runtime, so it may be called from one.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Socket, Statement};

use super::server::PostgresServer;
use crate::RunError;
use crate::blocking::waiting;
use crate::error::is_connection_error;

/// Time for a connection to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after which a connection whose other end is silent counts as cut.
const SILENCE: Duration = Duration::from_secs(60);

/// How often a connection looks whether those that it replaces have ended.
const END_CHECK: Duration = Duration::from_millis(10);

/// How long it waits for that at least, however late it was made.
const END_GRACE: Duration = Duration::from_secs(10);

/// The parameters of a statement.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection and its prepared statements.
pub(super) struct Link {
    client: Client,
    statements: HashMap<String, Statement>,
    /// Name of the connection at the server.
    name: String,
}

impl Link {
    /// Connects, with `schema` as the place of all tables. Connections that replace each other have one `name`.
    pub(super) fn connect(
        server: &PostgresServer,
        schema: Option<&str>,
        name: &str,
    ) -> Result<Self, RunError> {
        let name = format!("pybench {name}");
        let mut config = Config::new();
        config
            .host(&server.host)
            .port(server.port)
            .dbname(&server.database)
            .user(&server.user)
            .password(server.password()?)
            .application_name(&name)
            .connect_timeout(CONNECT_TIMEOUT)
            .keepalives_idle(SILENCE / 2)
            .tcp_user_timeout(SILENCE);
        let tls = server.tls()?;
        if tls.is_some() {
            config.ssl_mode(SslMode::Require);
        }
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new().name("postgres".to_owned());
        let drive = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(sender.send(Err(RunError::io("a runtime")(error)))),
            };
            match tls {
                Some(tls) => runtime.block_on(drive_connection(&config, tls, &sender)),
                None => runtime.block_on(drive_connection(&config, NoTls, &sender)),
            }
        };
        thread.spawn(drive).map_err(RunError::io("a thread"))?;
        let client = receiver.recv().unwrap_or_else(|_| {
            Err(RunError::Internal(
                "the thread of a database connection has ended".to_owned(),
            ))
        })?;
        let link = Self {
            client,
            statements: HashMap::new(),
            name,
        };
        // Whatever the server's default is: what is acknowledged is on its disk.
        let mut settings =
            "SET synchronous_commit = on; SET client_min_messages = warning".to_owned();
        // The server ends a connection whose client is gone, and with it the lock of the journal.
        settings += "; SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3; \
                     SET tcp_user_timeout = '60s'";
        // The server's default is for disks with heads: it would read all units to find those of some thousand offers, which takes ten times
        // as long in a run of 400,000.
        settings += "; SET random_page_cost = 1.1";
        if let Some(schema) = schema {
            settings += &format!("; SET search_path = \"{schema}\"");
        }
        block_on(link.client.batch_execute(&settings))?;
        Ok(link)
    }

    /// Ends the connections that this one replaces, and waits until they have ended: the server goes on with a statement whose
    /// client is gone, so that only then it is certain whether the statement took effect.
    ///
    /// # Errors
    /// [`RunError::Environment`] if one has not ended at `until`, or [`END_GRACE`] later than now.
    pub(super) async fn end_replaced(&mut self, until: Instant) -> Result<(), RunError> {
        let until = until.max(Instant::now() + END_GRACE);
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
             WHERE application_name = $1 AND usename = session_user AND pid <> pg_backend_pid()";
        let name = self.name.clone();
        loop {
            let ended = self.transaction(async |link| {
                // The server may give each connection another role (`ALTER ROLE … SET role`), which may not end those of its user.
                link.batch("SET LOCAL ROLE NONE").await?;
                link.query(end, &[&name]).await
            });
            if ended.await?.is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(RunError::Environment(
                    "PostgreSQL does not end a connection that was cut; restart it, and repeat the command"
                        .to_owned(),
                ));
            }
            waiting(|| std::thread::sleep(END_CHECK));
        }
    }

    /// Executes statements without parameters.
    pub(super) async fn batch(&self, statements: &str) -> Result<(), RunError> {
        Ok(self.client.batch_execute(statements).await?)
    }

    /// The rows of a statement.
    pub(super) async fn query(
        &mut self,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, RunError> {
        let statement = self.prepared(sql).await?;
        Ok(self.client.query(&statement, params).await?)
    }

    /// The only row of a statement, if it has one.
    pub(super) async fn row(
        &mut self,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Option<Row>, RunError> {
        Ok(self.query(sql, params).await?.into_iter().next())
    }

    /// The only row of a statement that always has one.
    pub(super) async fn one(&mut self, sql: &str, params: Params<'_>) -> Result<Row, RunError> {
        let row = self.row(sql, params).await?;
        row.ok_or_else(|| RunError::Internal(format!("PostgreSQL returned no row for {sql}")))
    }

    /// Number of rows that a statement changed.
    pub(super) async fn execute(&mut self, sql: &str, params: Params<'_>) -> Result<u64, RunError> {
        let statement = self.prepared(sql).await?;
        Ok(self.client.execute(&statement, params).await?)
    }

    /// Runs `work` in a transaction, which is rolled back if it fails.
    pub(super) async fn transaction<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut Self) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        self.batch("BEGIN").await?;
        match work(self).await {
            Ok(done) => {
                self.batch("COMMIT").await?;
                Ok(done)
            }
            Err(error) => {
                // Where the connection is cut, the server rolls back by itself.
                let _ = self.batch("ROLLBACK").await;
                Err(error)
            }
        }
    }

    async fn prepared(&mut self, sql: &str) -> Result<Statement, RunError> {
        if let Some(statement) = self.statements.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.statements.insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// Whether a statement failed because the connection was cut, or leads to a server that does not serve it now, so that it can
    /// be repeated over another connection.
    pub(super) fn is_cut(&self, error: &RunError) -> bool {
        self.client.is_closed() || is_unavailable(error)
    }
}

/// Connects, passes the result on, and drives the connection until it ends.
async fn drive_connection<T>(
    config: &Config,
    tls: T,
    sender: &mpsc::Sender<Result<Client, RunError>>,
) where
    T: MakeTlsConnect<Socket>,
    T::Stream: 'static,
{
    match config.connect(tls).await {
        Ok((client, connection)) => {
            let _ = sender.send(Ok(client));
            if let Err(error) = connection.await {
                tracing::debug!("a connection to PostgreSQL ended: {error}");
            }
        }
        Err(error) => drop(sender.send(Err(error.into()))),
    }
}

/// Whether what failed can be repeated.
pub(super) fn may_pass(error: &RunError) -> bool {
    is_unavailable(error) || is_rolled_back(error)
}

/// Whether the server gave up a transaction for the sake of another one, so that it can be repeated over the same connection.
pub(super) fn is_rolled_back(error: &RunError) -> bool {
    let codes = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
    ];
    matches!(error, RunError::Database(error) if error.code().is_some_and(|code| codes.contains(code)))
}

/// Whether the server cannot be used now, and may be later: it is out of reach, or only reads, as after a failover.
fn is_unavailable(error: &RunError) -> bool {
    let RunError::Database(error) = error else {
        return false;
    };
    match error.code() {
        Some(code) => {
            code.code().starts_with("08")
                || [
                    SqlState::ADMIN_SHUTDOWN,
                    SqlState::CRASH_SHUTDOWN,
                    SqlState::CANNOT_CONNECT_NOW,
                    SqlState::TOO_MANY_CONNECTIONS,
                    SqlState::READ_ONLY_SQL_TRANSACTION,
                ]
                .contains(code)
        }
        None => is_connection_error(error),
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks this thread until a future that needs no runtime on this thread is ready.
pub(super) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
