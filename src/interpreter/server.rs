//! Warm servers: one Python process per view, from which sessions are forked.
//!
//! The server is reached over a socket, one byte and a session's descriptors per request. What the
//! session is told it reads from its own control socket; what it tells first is its first process's
//! pidfd, by which the host ends it.

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
use super::engine::{Engine, Order};
use super::environment::Environment;
use super::local::Ground;
use super::protocol::{self, Request};
use super::sandbox::{Ends, First, Keeper, Sandbox, last_words, stream};
use super::view::View;
use super::worker::Worker;
use super::workspace::Storage;

/// How long the view may take to stand.
const VIEW_PATIENCE: Duration = Duration::from_secs(60);

/// How long a jail may take to stand, on a busy machine, the server's start included.
const JAIL_PATIENCE: Duration = Duration::from_secs(120);

/// How long a server may take to go.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// How long a dying server may take to let go of its socket.
const LAST_BREATH: Duration = Duration::from_millis(50);
/// How many such whiles.
const BREATHS: usize = 20;

/// How many servers may die under one session that starts.
const MAX_REPLACEMENTS: usize = 3;

/// Most descriptors in one message.
const MAX_FDS: usize = 8;

/// The warm servers of an interpreter, by what Python was started with.
pub(super) struct Servers {
    maker: Maker,
    running: Mutex<HashMap<Kind, Arc<Server>>>,
}

/// What sessions of one server have in common.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Kind {
    wheelhouse: Option<PathBuf>,
    /// Whether they have a way out.
    network: bool,
}

/// Makes servers.
#[derive(Clone)]
struct Maker {
    environment: Environment,
    storage: Storage,
    users: Option<Range<u32>>,
    worker: Worker,
}

/// One warm server and the process namespace that it shares with its sessions.
pub(super) struct Server {
    /// Waits for the first process of the namespace, which is killed with it.
    process: Child,
    requests: UnixStream,
    /// What it writes to stderr.
    log: File,
}

impl Servers {
    /// Start the server for sessions without wheelhouse and network. Returns when jails are known to work here;
    /// imports go on.
    pub(super) fn start(ground: &Ground) -> Result<Self, InterpreterError> {
        let maker = Maker {
            environment: ground.environment.clone(),
            storage: ground.storage.clone(),
            users: ground.users.clone(),
            worker: ground.worker.clone(),
        };
        let first = maker.clone();
        let made = maker
            .worker
            .run_blocking(move || first.make(&Kind::default()));
        let server = made
            .unwrap_or_else(|| Err(io::Error::other("the launcher has ended")))
            .map_err(|error| InterpreterError::Unavailable(format!("jails: {error}")))?;
        Ok(Self {
            maker,
            running: Mutex::new(HashMap::from([(Kind::default(), Arc::new(server))])),
        })
    }

    /// The server of a kind, started if there is none or it has died.
    async fn server(
        &self,
        kind: &Kind,
        dead: Option<&Arc<Server>>,
    ) -> Result<Arc<Server>, InterpreterError> {
        let mut running = self.running.lock().await;
        if let Some(server) = running.get(kind)
            && !dead.is_some_and(|dead| Arc::ptr_eq(dead, server))
        {
            return Ok(server.clone());
        }
        let (maker, wanted) = (self.maker.clone(), kind.clone());
        let made = self.maker.worker.run(move || maker.make(&wanted)).await?;
        let failed = |error| InterpreterError::Start(format!("the warm server: {error}"));
        let server = Arc::new(made.map_err(failed)?);
        running.insert(kind.clone(), server.clone());
        Ok(server)
    }
}

#[async_trait]
impl Engine for Servers {
    async fn launch(&self, order: Order) -> Result<Sandbox, InterpreterError> {
        let kind = Kind {
            wheelhouse: order.spec.wheelhouse.clone(),
            network: order.spec.network.is_some(),
        };
        let mut server = self.server(&kind, None).await?;
        let (user, failed) = (self.inside(&order), |error| {
            InterpreterError::Start(format!("a jail: {error}"))
        });
        let mut replacements = MAX_REPLACEMENTS;
        let (ends, init) = loop {
            let error = match server.fork(&order, user).await {
                Ok(forked) => break forked,
                Err(error) => error,
            };
            if replacements == 0 || !server.dies().await {
                return Err(failed(error));
            }
            tracing::warn!("the warm server has died and is replaced: {error}");
            replacements -= 1;
            server = self.server(&kind, Some(&server)).await?;
        };
        Ok(Sandbox {
            ends,
            init: First(init),
            group: order.group,
            keeper: Keeper::Server { _alive: server },
            door: None,
        })
    }

    fn holds_to_hosts(&self) -> bool {
        true
    }
}

impl Servers {
    /// A host user's number inside the server's namespace.
    fn inside(&self, order: &Order) -> u32 {
        match (order.user, &self.maker.users) {
            (Some(user), Some(users)) => user.saturating_sub(users.start),
            _ => 0,
        }
    }
}

impl Maker {
    /// Start a server. Must run on a thread of the launcher; returns when its view stands.
    fn make(&self, kind: &Kind) -> io::Result<Server> {
        let view = View::new(&self.environment, kind.wheelhouse.as_deref(), kind.network);
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
        drop(command); // and with it our copy of its end
        if let Some(mut input) = process.stdin.take() {
            input.write_all(&self.configuration(&view)?)?;
        }
        let server = Server {
            process,
            requests,
            log,
        };
        server.requests.set_read_timeout(Some(VIEW_PATIENCE))?;
        let mut stands = [0];
        match (&server.requests).read(&mut stands) {
            Ok(1) => {}
            Ok(_) => return Err(io::Error::other(last_words(&server.log))),
            Err(error) => return Err(error),
        }
        server.requests.set_nonblocking(true)?;
        Ok(server)
    }

    fn configuration(&self, view: &View) -> io::Result<Vec<u8>> {
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
        })?)
    }
}

/// What `view.py` reads.
#[derive(Serialize)]
struct Configuration<'a> {
    /// First and number.
    users: Option<(u32, u32)>,
    sessions: &'a Path,
    #[serde(flatten)]
    view: &'a View,
    /// Where other file systems will be mounted.
    folders: [&'static str; 5],
    /// The system call filter, hexadecimal.
    filter: String,
}

impl Server {
    /// Fork a session and wait until its first process is known.
    async fn fork(&self, order: &Order, user: u32) -> io::Result<(Ends, OwnedFd)> {
        let (ends, [control, interrupt]) = Ends::make()?;
        let groups = order.group.joins()?;
        let mut inside = vec![
            control.as_fd(),
            interrupt.as_fd(),
            ends.streams[0].as_fd(),
            ends.streams[1].as_fd(),
        ];
        inside.extend(groups.iter().map(AsFd::as_fd));
        self.ask(&inside).await?;
        drop((control, interrupt));
        let stream = ends.control.try_clone()?;
        stream.set_nonblocking(true)?;
        let mut stream = tokio::net::UnixStream::from_std(stream)?;
        let jail = Request::Jail {
            user,
            workspace: order.workspace.name(),
            read_only: order.workspace.read_only(),
            temporary: order.temporary(),
        };
        let greeting = async {
            protocol::send(&mut stream, &jail).await?;
            protocol::receive_descriptor(&stream).await
        };
        let late = |_| io::Error::other("it did not stand in time");
        match timeout(JAIL_PATIENCE, greeting).await.map_err(late)? {
            Ok(init) => Ok((ends, init)),
            Err(error) => Err(io::Error::other(format!("{error}: {}", ends.last_words()))),
        }
    }

    /// Send descriptors to the server.
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
                Err(rustix::io::Errno::AGAIN) => {} // many wait already
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Whether it ends now. A fork that has just begun holds the server's socket for a moment longer.
    async fn dies(&self) -> bool {
        for _ in 0..BREATHS {
            tokio::time::sleep(LAST_BREATH).await;
            if self.is_dead() {
                return true;
            }
        }
        false
    }

    /// Whether nobody would hear another request.
    fn is_dead(&self) -> bool {
        // It says nothing after its first word: there is an end to be read, or nothing yet.
        let nothing = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
        !matches!((&self.requests).read_exact(&mut [0]), Err(error) if nothing(&error))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Told to end, it kills the namespace and waits for it; killed itself, it would leave that to others.
        if let Some(pid) = Pid::from_raw(self.process.id().cast_signed()) {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let until = Instant::now() + END_PATIENCE;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
