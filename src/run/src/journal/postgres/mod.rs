//! The journal in PostgreSQL: one schema per run.
//!
//! The process that opened the journal holds an advisory lock over its connection, so that no other process opens it. A
//! connection that is cut is made again, and the statement is repeated; a transaction that the server gave up for the sake
//! of another one is repeated too. Every operation can tell whether its first try took effect.

mod batches;
mod calls;
mod link;
mod offers;
mod server;
mod steps;
mod tables;
mod tls;
mod transfer;
mod units;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use self::link::{Link, block_on, is_rolled_back, may_pass};
pub use self::server::PostgresServer;
pub use self::tables::{PostgresTables, SqlRow, SqlTransaction, SqlValue};
use super::paid_calls::PaidCalls;
use crate::RunError;
use crate::blocking::waiting;
use crate::boot_clock::since_boot;

const SCHEMA: &str = include_str!("schema.sql");

/// Version of the tables.
const VERSION: i64 = 1;

/// How long an operation waits for the server to come back.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long opening waits for a server that does not answer, since it may be restarting.
const RESTART: Duration = Duration::from_secs(10);

/// How long opening waits for a process that has just ended to release the journal.
const LOCK_GRACE: Duration = Duration::from_secs(10);

/// How long a process that connects again waits until the server has noticed that its old connection is gone.
const OWN_LOCK_GRACE: Duration = Duration::from_secs(90);

/// First and longest wait between two attempts to connect.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const MAX_WAIT: Duration = Duration::from_secs(2);

/// How long the clock of the server is not read again.
const CLOCK_AGE: Duration = Duration::from_secs(10);

/// How long a reading of that clock may take to be kept. After a longer one, such as that of a process that was suspended
/// meanwhile, leases would end earlier than this process believes.
const MAX_READING: Duration = Duration::from_millis(100);

/// A connection to the schema of a run.
pub(super) struct PostgresJournal {
    server: PostgresServer,
    schema: String,
    role: Role,
    /// Names this handle in what it reserves and leases.
    holder: String,
    link: Slot,
    /// The connection of leases and signs of life, so that they never wait behind a slow statement; it is made when it is needed.
    signs: Slot,
    /// `None` if the journal is read-only, or if another process counts.
    paid: Option<PaidCalls>,
    /// The server's Unix time in milliseconds when it was read last, and the time since this machine had started.
    clock: Mutex<Option<(i64, Duration)>>,
    /// Offers that have ended since their table was vacuumed.
    ended_offers: AtomicU64,
}

/// The place of a connection, which is made again when it is cut.
struct Slot {
    /// Name of all its connections.
    name: String,
    /// `None` while the connection is cut.
    link: Mutex<Option<Link>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Opened the journal; no other process does.
    Owner {
        generation: i64,
    },
    /// A further connection of the owner, which does not hold the lock.
    BesideOwner {
        generation: i64,
    },
    Worker,
    Reader,
}

impl std::fmt::Debug for PostgresJournal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = formatter.debug_struct("PostgresJournal");
        text.field("schema", &self.schema).field("role", &self.role);
        text.finish_non_exhaustive()
    }
}

impl PostgresJournal {
    /// Opens or creates the journal. Calls that a dead process left in flight become uncertain. `calls` is the file that
    /// counts paid calls.
    ///
    /// # Errors
    /// [`RunError::Conflict`] if another process has the journal open.
    pub(super) fn open(
        server: &PostgresServer,
        schema: &str,
        calls: &Path,
    ) -> Result<Self, RunError> {
        let (journal, settled) = Self::create(server, schema)?;
        let name = format!("schema {schema} of PostgreSQL");
        let paid = PaidCalls::open(calls, &name, settled)?;
        Ok(Self {
            paid: Some(paid),
            ..journal
        })
    }

    /// As [`Self::open`], and counts no paid calls: for a schema that a journal is copied to. Also returns the number of
    /// settled calls.
    pub(super) fn create(server: &PostgresServer, schema: &str) -> Result<(Self, u64), RunError> {
        server.check()?;
        check_schema(schema)?;
        let create = format!("CREATE SCHEMA IF NOT EXISTS \"{schema}\"; {SCHEMA}");
        let (holder, at) = (random_name(), Some(schema));
        let ((generation, settled), link) = connected_as(server, at, &holder, async |link| {
            lock(link, schema, LOCK_GRACE).await?;
            link.transaction(async |link| link.batch(&create).await)
                .await?;
            check_version(link, schema).await?;
            link.transaction(recover).await
        })?;
        let role = Role::Owner { generation };
        let journal = Self::with((server, schema), (holder, link), role);
        Ok((journal, settled))
    }

    /// Opens the journal that another handle has opened, for a further worker.
    pub(super) fn join(server: &PostgresServer, schema: &str) -> Result<Self, RunError> {
        Self::existing(server, schema, Role::Worker)
    }

    /// Opens an existing journal for reading, while another process may be writing.
    pub(super) fn open_read_only(server: &PostgresServer, schema: &str) -> Result<Self, RunError> {
        Self::existing(server, schema, Role::Reader)
    }

    fn existing(server: &PostgresServer, schema: &str, role: Role) -> Result<Self, RunError> {
        server.check()?;
        check_schema(schema)?;
        let holder = random_name();
        let ((), link) = connected_as(server, Some(schema), &holder, async |link| {
            check_version(link, schema).await?;
            role.prepare(link, schema).await
        })?;
        Ok(Self::with((server, schema), (holder, link), role))
    }

    /// `link` has the name `holder`.
    fn with(
        (server, schema): (&PostgresServer, &str),
        (holder, link): (String, Link),
        role: Role,
    ) -> Self {
        Self {
            server: server.clone(),
            schema: schema.to_owned(),
            role,
            link: Slot {
                name: holder.clone(),
                link: Mutex::new(Some(link)),
            },
            signs: Slot {
                name: format!("{holder} leases"),
                link: Mutex::default(),
            },
            holder,
            paid: None,
            clock: Mutex::new(None),
            ended_offers: AtomicU64::new(0),
        }
    }

    /// Checks that the server can be used; one that is restarting is waited for.
    pub(super) fn reach(server: &PostgresServer) -> Result<(), RunError> {
        server.check()?;
        connected(server, None, async |link| link.batch("SELECT 1").await)?;
        Ok(())
    }

    /// Whether the schema has no journal yet.
    pub(super) fn is_blank(server: &PostgresServer, schema: &str) -> Result<bool, RunError> {
        server.check()?;
        let exists = "SELECT EXISTS (SELECT 1 FROM information_schema.tables
             WHERE table_schema = $1 AND table_name = 'journal_version')";
        let (row, _) = connected(server, None, async |link| {
            link.one(exists, &[&schema]).await
        })?;
        Ok(!row.try_get::<_, bool>(0)?)
    }

    /// The schemas that hold journals and whose names begin with `prefix`, sorted.
    pub(super) fn schemas(server: &PostgresServer, prefix: &str) -> Result<Vec<String>, RunError> {
        server.check()?;
        let named = "SELECT table_schema::text FROM information_schema.tables
             WHERE table_name = 'journal_version' AND starts_with(table_schema::text, $1) ORDER BY 1";
        let (rows, _) = connected(server, None, async |link| {
            link.query(named, &[&prefix]).await
        })?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    /// Deletes the schema of a run.
    pub(super) fn delete(server: &PostgresServer, schema: &str) -> Result<(), RunError> {
        server.check()?;
        check_schema(schema)?;
        let delete = format!("DROP SCHEMA IF EXISTS \"{schema}\" CASCADE");
        let ((), _) = connected(server, None, async |link| {
            lock(link, schema, LOCK_GRACE).await?;
            link.batch(&delete).await
        })?;
        Ok(())
    }

    /// Runs an operation as [`Slot::run`] does.
    fn run<T>(
        &self,
        operation: impl AsyncFn(&mut Link, bool) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        self.run_over(&self.link, self.role, operation)
    }

    /// As [`Self::run`], over the connection for what must not wait behind other operations.
    fn run_apart<T>(
        &self,
        operation: impl AsyncFn(&mut Link, bool) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        match self.role {
            // It has no leases, and needs no second connection.
            Role::Reader => self.run(operation),
            role => self.run_over(&self.signs, role.beside(), operation),
        }
    }

    fn run_over<T>(
        &self,
        slot: &Slot,
        role: Role,
        operation: impl AsyncFn(&mut Link, bool) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        let prepare = |link: &mut Link| block_on(role.prepare(link, &self.schema));
        slot.run((&self.server, &*self.schema), prepare, |link, repeated| {
            block_on(operation(link, repeated))
        })
    }

    /// The server's Unix time in milliseconds: processes on several machines compare leases with it. Between two questions,
    /// the clock of this machine that is never set measures the time.
    fn server_millis(&self) -> Result<i64, RunError> {
        let known = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((millis, read)) = known {
            let age = since_boot().saturating_sub(read);
            if age < CLOCK_AGE {
                let elapsed = i64::try_from(age.as_millis()).unwrap_or(0);
                return Ok(millis.saturating_add(elapsed));
            }
        }
        let read = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
        let asked = since_boot();
        let row = self.run_apart(async |link, _| link.one(read, &[]).await)?;
        let (millis, heard) = (row.try_get(0)?, since_boot());
        let reading = (heard.saturating_sub(asked) <= MAX_READING).then_some((millis, heard));
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = reading;
        Ok(millis)
    }
}

impl Slot {
    /// Runs an operation. For [`PATIENCE`], it is repeated: over another connection, which `prepare` makes ready, if this one is
    /// cut, and over this one if the server gave it up for the sake of another transaction. The operation learns whether it
    /// was tried before: the first try may have taken effect, and is over.
    fn run<T>(
        &self,
        (server, schema): (&PostgresServer, &str),
        prepare: impl Fn(&mut Link) -> Result<(), RunError>,
        operation: impl Fn(&mut Link, bool) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        let mut place = self.locked();
        let (mut repeated, mut failing_since, mut wait) = (false, None, FIRST_WAIT);
        loop {
            let link = match &mut *place {
                Some(link) => link,
                none => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    let connect = || self.reconnect((server, schema), since + PATIENCE, &prepare);
                    none.insert(waiting(connect)?)
                }
            };
            let error = match operation(link, repeated) {
                Err(error) if link.is_cut(&error) => {
                    tracing::warn!(
                        "the connection to PostgreSQL was cut, connecting again: {error}"
                    );
                    *place = None;
                    error
                }
                Err(error) if is_rolled_back(&error) => {
                    tracing::debug!("PostgreSQL rolled a transaction back, repeating it: {error}");
                    error
                }
                done => return done,
            };
            let since = *failing_since.get_or_insert_with(Instant::now);
            if since.elapsed() > PATIENCE {
                return Err(error);
            }
            if repeated {
                waiting(|| std::thread::sleep(wait));
                wait = (wait * 2).min(MAX_WAIT);
            }
            repeated = true;
        }
    }

    fn reconnect(
        &self,
        (server, schema): (&PostgresServer, &str),
        until: Instant,
        prepare: impl Fn(&mut Link) -> Result<(), RunError>,
    ) -> Result<Link, RunError> {
        let mut wait = FIRST_WAIT;
        loop {
            let connected = Link::connect(server, Some(schema), &self.name);
            let connected = connected.and_then(|mut link| {
                block_on(link.end_replaced(until))?;
                prepare(&mut link)?;
                Ok(link)
            });
            match connected {
                Err(error) if may_pass(&error) && Instant::now() < until => {
                    std::thread::sleep(wait);
                    wait = (wait * 2).min(MAX_WAIT);
                }
                connected => return connected,
            }
        }
    }

    /// The connection, if there is one.
    fn locked(&self) -> MutexGuard<'_, Option<Link>> {
        // A panic leaves a transaction open at most, so that connection is not used again.
        self.link.lock().unwrap_or_else(|poisoned: PoisonError<_>| {
            let mut link = poisoned.into_inner();
            *link = None;
            self.link.clear_poison();
            link
        })
    }
}

/// A name that no other handle has.
fn random_name() -> String {
    let random = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", random(), random())
}

/// Connects and executes `work`, which may be repeated. A server that cannot be used may be restarting, so that it is tried
/// again for a while.
fn connected<T>(
    server: &PostgresServer,
    schema: Option<&str>,
    work: impl AsyncFn(&mut Link) -> Result<T, RunError>,
) -> Result<(T, Link), RunError> {
    connected_as(server, schema, &random_name(), work)
}

/// As [`connected`], with a name for the connection.
fn connected_as<T>(
    server: &PostgresServer,
    schema: Option<&str>,
    name: &str,
    work: impl AsyncFn(&mut Link) -> Result<T, RunError>,
) -> Result<(T, Link), RunError> {
    let (since, mut wait) = (Instant::now(), FIRST_WAIT);
    loop {
        let is_first = wait == FIRST_WAIT;
        let worked = Link::connect(server, schema, name).and_then(|mut link| {
            if !is_first {
                block_on(link.end_replaced(since + RESTART))?;
            }
            let done = block_on(work(&mut link))?;
            Ok((done, link))
        });
        match worked {
            Err(error) if may_pass(&error) && since.elapsed() < RESTART => {
                if is_first {
                    tracing::warn!(
                        "PostgreSQL on {}:{} cannot be used now, trying again for {} seconds: {error}",
                        server.host,
                        server.port,
                        RESTART.as_secs()
                    );
                }
                waiting(|| std::thread::sleep(wait));
                wait = (wait * 2).min(MAX_WAIT);
            }
            worked => return worked,
        }
    }
}

impl PostgresServer {
    /// Connects, and asks for the version of the server and the number of journals in the database.
    ///
    /// # Errors
    /// The server does not answer, or refuses the user.
    pub fn probe(&self) -> Result<(String, u64), RunError> {
        let mut link = Link::connect(self, None, &random_name())?;
        let counted = "SELECT current_setting('server_version'),
             (SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'journal_version')";
        let row = block_on(link.one(counted, &[]))?;
        Ok((row.try_get(0)?, row.try_get::<_, i64>(1)?.unsigned_abs()))
    }
}

impl Role {
    /// The role of a further connection of the same process.
    fn beside(self) -> Self {
        match self {
            Self::Owner { generation } => Self::BesideOwner { generation },
            other => other,
        }
    }

    /// Makes a new connection one of this role.
    async fn prepare(self, link: &mut Link, schema: &str) -> Result<(), RunError> {
        match self {
            Self::Worker => Ok(()),
            Self::Reader => link.batch("SET default_transaction_read_only = on").await,
            Self::BesideOwner { generation } => check_generation(link, schema, generation).await,
            Self::Owner { generation } => {
                // Another owner is reported at once; otherwise the lock is that of this process's own last connection.
                check_generation(link, schema, generation).await?;
                lock(link, schema, OWN_LOCK_GRACE).await?;
                check_generation(link, schema, generation).await
            }
        }
    }
}

/// Checks that no other process has opened the journal since this one did.
async fn check_generation(link: &mut Link, schema: &str, generation: i64) -> Result<(), RunError> {
    let now = link
        .one("SELECT generation FROM journal_version", &[])
        .await?;
    match now.try_get::<_, i64>(0)? == generation {
        true => Ok(()),
        false => Err(RunError::Conflict(format!(
            "another process has opened the journal in schema {schema} while this one had no connection; end one of them"
        ))),
    }
}

/// Takes the lock that the owner of a journal holds while it is connected; waits for it as long as `grace`.
async fn lock(link: &mut Link, schema: &str, grace: Duration) -> Result<(), RunError> {
    let since = Instant::now();
    loop {
        let locked = "SELECT pg_try_advisory_lock(hashtextextended($1, 0))";
        if link.one(locked, &[&schema]).await?.try_get(0)? {
            return Ok(());
        }
        if since.elapsed() > grace {
            return Err(RunError::Conflict(format!(
                "the journal in schema {schema} of PostgreSQL is in use by another process; wait for that process to \
                 end, or choose another run folder with --run NAME"
            )));
        }
        waiting(|| std::thread::sleep(Duration::from_millis(50)));
    }
}

async fn check_version(link: &mut Link, schema: &str) -> Result<(), RunError> {
    let row = link.one("SELECT version FROM journal_version", &[]).await?;
    match row.try_get::<_, i64>(0)? {
        VERSION => Ok(()),
        other => Err(RunError::BadInput(format!(
            "the journal in schema {schema} of PostgreSQL has version {other}, and this program reads version {VERSION}"
        ))),
    }
}

/// Begins a generation: the processes that held leases or waited for calls have ended, except workers that are alive. Returns the generation and the
/// number of settled calls.
async fn recover(link: &mut Link) -> Result<(i64, u64), RunError> {
    link.batch(batches::DELETE_UNSENT).await?;
    offers::remove_dead(link).await?;
    // Units before offers, as everywhere: a worker that was taken for dead may renew a lease just now. The offers are those of
    // the last coordinator; this one may want other units.
    link.batch(
        "UPDATE unit SET lease_until = 0 WHERE lease_until <> 0
             AND (holder IS NULL OR holder NOT IN (SELECT holder FROM member));
         DELETE FROM offer; DELETE FROM fact WHERE key IN ('round', 'round.stop');
         UPDATE call SET state = 'uncertain' WHERE state = 'in_flight'
             AND (holder IS NULL OR holder NOT IN (SELECT holder FROM member));",
    )
    .await?;
    let opened = "UPDATE journal_version SET generation = generation + 1 RETURNING generation,
         (SELECT COUNT(*) FROM call WHERE state = 'settled')";
    let row = link.one(opened, &[]).await?;
    Ok((row.try_get(0)?, unsigned(row.try_get(1)?)))
}

/// Names of schemas are written into statements.
fn check_schema(schema: &str) -> Result<(), RunError> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    match (1..=63).contains(&schema.len()) && schema.chars().all(allowed) {
        true => Ok(()),
        false => Err(RunError::BadInput(format!(
            "{schema:?} is no name of a schema: it has 1 to 63 lower-case letters, digits or `_`"
        ))),
    }
}

/// A number as PostgreSQL stores it.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A number that is never negative.
fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}
