//! Warm servers: Python processes from which the sessions of the `jail` tier are forked, one server per
//! set of mounts (docs/jail.md).
//!
//! Each request to the server is one byte with a session's descriptors. The new session then reads its
//! `jail` request from its own control socket and first sends the pidfd of its first process, with which
//! the host kills it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::{Pid, Signal};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::InterpreterError;
use super::engine::HostEnv;
use super::engine::{Engine, LaunchSpec};
use super::environment::Environment;
use super::mount_spec::MountSpec;
use super::protocol::{self, Request};
use super::sandbox::{ChildGuard, HostIo, InitProcess, Sandbox, stderr_tail, stream};
use super::worker::Worker;
use super::workspace::Storage;

/// How long a server may take to set up its mounts.
const SERVER_START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a jail may take to start, including the server's imports; generous for busy machines.
const JAIL_START_TIMEOUT: Duration = Duration::from_secs(120);

/// How long a server may take to stop.
const SERVER_STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How often to check whether a dying server has closed its socket; at most [`EXIT_POLLS`] times.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(50);
const EXIT_POLLS: usize = 20;

/// How often a dead server is replaced while one session starts.
const MAX_REPLACEMENTS: usize = 3;

/// Maximum number of descriptors in one message.
const MAX_FDS: usize = 8;

/// The warm servers of an interpreter.
pub(super) struct WarmServers {
    factory: ServerFactory,
    running: Mutex<HashMap<ServerKey, Arc<WarmServer>>>,
}

/// The properties that all sessions of one server share.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct ServerKey {
    wheelhouse: Option<PathBuf>,
    /// Whether they have a network proxy.
    network: bool,
}

/// Starts servers.
#[derive(Clone)]
struct ServerFactory {
    environment: Environment,
    storage: Storage,
    users: Option<Range<u32>>,
    worker: Worker,
}

/// One warm server. Its sessions share its process namespace.
pub(crate) struct WarmServer {
    /// The parent of the namespace's first process, which is killed with it.
    process: Child,
    requests: UnixStream,
    /// The server's stdout and stderr.
    log: File,
}

impl WarmServers {
    /// Starts the server for sessions without wheelhouse and network. Returns when jails are known to work
    /// here, before the server's imports are complete.
    pub(super) fn start(host: &HostEnv) -> Result<Self, InterpreterError> {
        let factory = ServerFactory {
            environment: host.environment.clone(),
            storage: host.storage.clone(),
            users: host.users.clone(),
            worker: host.worker.clone(),
        };
        let first = factory.clone();
        let made = factory
            .worker
            .run_blocking(move || first.make(&ServerKey::default()));
        let server = made
            .unwrap_or_else(|| Err(io::Error::other("the launcher thread has stopped")))
            .map_err(|error| {
                InterpreterError::Unavailable(format!(
                    "jails cannot be created on this machine: {error} (see docs/jail.md)"
                ))
            })?;
        Ok(Self {
            factory,
            running: Mutex::new(HashMap::from([(ServerKey::default(), Arc::new(server))])),
        })
    }

    /// The server for a key; starts one if there is none or it is `dead`.
    async fn server(
        &self,
        key: &ServerKey,
        dead: Option<&Arc<WarmServer>>,
    ) -> Result<Arc<WarmServer>, InterpreterError> {
        let mut running = self.running.lock().await;
        if let Some(server) = running.get(key)
            && !dead.is_some_and(|dead| Arc::ptr_eq(dead, server))
        {
            return Ok(server.clone());
        }
        let (factory, wanted) = (self.factory.clone(), key.clone());
        let made = self
            .factory
            .worker
            .run(move || factory.make(&wanted))
            .await?;
        let failed = |error| InterpreterError::Start(format!("the warm server: {error}"));
        let server = Arc::new(made.map_err(failed)?);
        running.insert(key.clone(), server.clone());
        Ok(server)
    }
}

#[async_trait]
impl Engine for WarmServers {
    async fn launch(&self, launch_spec: LaunchSpec) -> Result<Sandbox, InterpreterError> {
        let key = ServerKey {
            wheelhouse: launch_spec.spec.wheelhouse.clone(),
            network: launch_spec.spec.network.is_some(),
        };
        let mut server = self.server(&key, None).await?;
        let (user, failed) = (self.inside(&launch_spec), |error| {
            InterpreterError::Start(format!("creating a jail: {error}"))
        });
        let mut replacements = MAX_REPLACEMENTS;
        let (host_io, init) = loop {
            let error = match server.fork(&launch_spec, user).await {
                Ok(forked) => break forked,
                Err(error) => error,
            };
            if replacements == 0 || !server.is_exiting().await {
                return Err(failed(error));
            }
            tracing::warn!("the warm server has died and is being replaced: {error}");
            replacements -= 1;
            server = self.server(&key, Some(&server)).await?;
        };
        Ok(Sandbox {
            host_io,
            init: InitProcess(init),
            group: launch_spec.group,
            child_guard: ChildGuard::WarmServer { _alive: server },
            proxy_socket: None,
        })
    }

    fn supports_allowlist(&self) -> bool {
        true
    }

    fn has_pid_namespace(&self) -> bool {
        true
    }
}

impl WarmServers {
    /// The number of a host user inside the server's user namespace.
    fn inside(&self, launch_spec: &LaunchSpec) -> u32 {
        match (launch_spec.user, &self.factory.users) {
            (Some(user), Some(users)) => user.saturating_sub(users.start),
            _ => 0,
        }
    }
}

impl ServerFactory {
    /// Starts a server. Must run on a launcher thread; returns when the server has set up its mounts.
    fn make(&self, key: &ServerKey) -> io::Result<WarmServer> {
        let view = MountSpec::new(&self.environment, key.wheelhouse.as_deref(), key.network);
        let (requests, inside) = UnixStream::pair()?;
        let (log, inside) = (stream("server")?, OwnedFd::from(inside));
        let script = self.environment.runner.join("lib");
        let code = format!(
            "import sys; sys.path.insert(0, {:?}); from pybench_runner import view; view.main({}, {})",
            script,
            std::os::fd::AsRawFd::as_raw_fd(&inside),
            std::process::id(),
        );
        let mut command = Command::new(self.environment.root.join("bin/python"));
        command
            .args(["-I", "-S", "-c", &code])
            .env_clear()
            .current_dir("/")
            .process_group(0) // as for every sandbox, see `child::spawn`
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?);
        // SAFETY: a system call on a descriptor that the closure owns; nothing is allocated or locked.
        unsafe {
            command.pre_exec(move || {
                Ok(rustix::io::fcntl_setfd(
                    &inside,
                    rustix::io::FdFlags::empty(),
                )?)
            });
        }
        let mut process = command.spawn()?;
        drop(command); // closes our copy of the server's socket
        if let Some(mut input) = process.stdin.take() {
            input.write_all(&self.configuration(&view)?)?;
        }
        let server = WarmServer {
            process,
            requests,
            log,
        };
        server
            .requests
            .set_read_timeout(Some(SERVER_START_TIMEOUT))?;
        let mut ready = [0];
        match (&server.requests).read(&mut ready) {
            Ok(1) => {}
            Ok(_) => return Err(io::Error::other(stderr_tail(&server.log))),
            Err(error) => return Err(error),
        }
        server.requests.set_nonblocking(true)?;
        Ok(server)
    }

    fn configuration(&self, view: &MountSpec) -> io::Result<Vec<u8>> {
        let filter: String = super::seccomp::program()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(serde_json::to_vec(&Configuration {
            users: self.users.as_ref().map(|u| (u.start, u.end - u.start)),
            sessions: self.storage.base(),
            view,
            folders: ["/proc", "/tmp", "/dev/pts", "/dev/shm", "/workspace"],
            filter,
            warm: std::env::var("PYBENCH_WARM").ok(),
        })?)
    }
}

/// The configuration that `view.py` reads.
#[derive(Serialize)]
struct Configuration<'a> {
    /// First host user and count.
    users: Option<(u32, u32)>,
    sessions: &'a Path,
    #[serde(flatten)]
    view: &'a MountSpec,
    /// Mount points of other file systems.
    folders: [&'static str; 5],
    /// The system call filter, hexadecimal.
    filter: String,
    /// Packages that the server imports instead of its own list, separated by spaces.
    warm: Option<String>,
}

impl WarmServer {
    /// Forks a session and waits for the pidfd of its first process.
    async fn fork(&self, launch_spec: &LaunchSpec, user: u32) -> io::Result<(HostIo, OwnedFd)> {
        let (host_io, [control, interrupt]) = HostIo::make()?;
        let groups = launch_spec.group.cgroup_files()?;
        let mut inside = vec![
            control.as_fd(),
            interrupt.as_fd(),
            host_io.streams[0].as_fd(),
            host_io.streams[1].as_fd(),
        ];
        inside.extend(groups.iter().map(AsFd::as_fd));
        self.ask(&inside).await?;
        drop((control, interrupt));
        let stream = host_io.control.try_clone()?;
        stream.set_nonblocking(true)?;
        let mut stream = tokio::net::UnixStream::from_std(stream)?;
        let jail = Request::Jail {
            user,
            workspace: launch_spec.workspace.name(),
            read_only: launch_spec.workspace.read_only(),
            temporary: launch_spec.tmpfs_bytes(),
        };
        let handshake = async {
            protocol::send(&mut stream, &jail).await?;
            protocol::receive_descriptor(&stream).await
        };
        let late = |_| io::Error::other("it was not ready in time");
        match timeout(JAIL_START_TIMEOUT, handshake).await.map_err(late)? {
            Ok(init) => Ok((host_io, init)),
            Err(error) => Err(io::Error::other(format!(
                "{error}: {}",
                host_io.stderr_tail()
            ))),
        }
    }

    /// Sends descriptors to the server.
    async fn ask(&self, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(io::Error::other("too many descriptors"));
            }
            let byte = [IoSlice::new(b"s")];
            match sendmsg(&self.requests, &byte, &mut ancillary, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::AGAIN) => {} // the socket is full: many requests are waiting
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether the server ends within a second. A fork that has just started can hold its socket that long.
    async fn is_exiting(&self) -> bool {
        for _ in 0..EXIT_POLLS {
            tokio::time::sleep(EXIT_POLL_INTERVAL).await;
            if self.is_dead() {
                return true;
            }
        }
        false
    }

    /// Whether the server's end of the socket is closed.
    fn is_dead(&self) -> bool {
        // The server sends only one byte, at the start: a read now finds the end of the stream, or blocks.
        let nothing = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        !matches!((&self.requests).read_exact(&mut [0]), Err(error) if nothing(&error))
    }
}

impl Drop for WarmServer {
    fn drop(&mut self) {
        // On SIGTERM the server kills its namespace and waits for its end; on SIGKILL it could not.
        if let Some(pid) = Pid::from_raw(self.process.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let until = Instant::now() + SERVER_STOP_TIMEOUT;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
