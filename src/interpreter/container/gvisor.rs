//! Sandboxes made by gVisor's `runsc`: a kernel of its own, in user space, for each session. Rootless,
//! without network, from an OCI bundle. The runner's sockets and streams come over its standard input and
//! output (`relay.rs`): a host's file handed in would be one that no limit of its kernel bounds.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde_json::{Value, json};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::describe::{Container, Mount, World, door, mount_points};
use super::relay::Started;
use crate::interpreter::child::enter;
use crate::interpreter::engine::{Engine, Order};
use crate::interpreter::environment::Environment;
use crate::interpreter::network::Door;
use crate::interpreter::sandbox::{Ends, Sandbox};
use crate::interpreter::view::View;
use crate::interpreter::worker::Worker;
use crate::interpreter::{InterpreterError, Limits};

/// Threads of `runsc`, of its sandbox and of what serves files to it.
const HELPERS: u64 = 128;

/// Processes and threads of the host's behind each of its own.
const STUBS: u64 = 8;

/// Memory of its kernel and of what serves files to it.
const KERNEL_MIB: u64 = 128;

/// How often a sandbox is looked at for a kill for want of memory.
const LOOK: Duration = Duration::from_millis(500);

/// How long `runsc` may take to name its process.
const PATIENCE: Duration = Duration::from_secs(60);

/// The `runsc` of this machine.
#[derive(Clone)]
pub(in crate::interpreter) struct Gvisor {
    program: PathBuf,
    environment: Environment,
    /// Holds the mount points, and the folders of running sandboxes.
    base: PathBuf,
    /// Starts processes.
    worker: Worker,
}

impl Gvisor {
    /// Find it, and make the root folder that all sandboxes share.
    pub(in crate::interpreter) fn find(
        environment: Environment,
        worker: Worker,
    ) -> Result<Self, InterpreterError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders = std::env::split_paths(&path).map(|folder| folder.join("runsc"));
        let program = folders.find(|path| path.is_file()).ok_or_else(|| {
            let text = "gVisor is missing. Install it with: apt-get install runsc";
            InterpreterError::Unavailable(text.to_owned())
        })?;
        let base = environment.cache.join("gvisor");
        let view = View::new(&environment, None, false);
        sweep(&base);
        mount_points(&base.join("root"), &view).map_err(|error| {
            InterpreterError::Unavailable(format!("preparing {}: {error}", base.display()))
        })?;
        Ok(Self {
            program,
            environment,
            base,
            worker,
        })
    }

    /// `runsc` with what all of its calls have in common.
    fn command(&self, state: &Path, user: Option<u32>, joins: Vec<File>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--rootless", "--network=none", "--ignore-cgroups", "--root"])
            .arg(state)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir("/")
            .stdin(Stdio::null());
        // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
        unsafe {
            command.pre_exec(move || {
                enter(&joins, &[], user)?;
                // `runsc` takes its sandbox with it. A change of user forgets this: it comes last.
                Ok(rustix::process::set_parent_process_death_signal(Some(
                    Signal::KILL,
                ))?)
            })
        };
        command
    }

    /// Start a sandbox. Must run on a thread of the launcher.
    fn try_launch(&self, order: Order) -> io::Result<Started> {
        // `runsc` names an abstract socket by it, which all of the machine share.
        let name = format!("pybench-{:032x}", rand::random::<u128>());
        let folder = tempfile::Builder::new()
            .prefix(&format!("{}-", std::process::id()))
            .tempdir_in(&self.base)?;
        let state = folder.path().join("state");
        fs::create_dir(&state)?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        if let Some(user) = order.user {
            chown(&state, Some(user), Some(user))?;
        }
        let door = door(&self.environment, &order)?;
        let config = self.config(&order, door.as_ref());
        fs::write(folder.path().join("config.json"), config.to_string())?;

        let (ends, inside) = Ends::make()?;
        let mut command = self.command(&state, order.user, order.group.joins()?);
        if door.is_some() {
            // Its kernel may connect to sockets of what is mounted: there is one, the door.
            command.arg("--host-uds=open");
        }
        command
            .args(["run", "--pid-file"])
            .arg(state.join("pid"))
            .arg("--bundle")
            .arg(folder.path())
            .arg(&name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(ends.streams[1].try_clone()?);
        let mut monitor = command.spawn()?;
        let first = match first_process(&state.join("pid"), &mut monitor) {
            Ok(first) => first,
            Err(error) => {
                let _ = monitor.kill();
                let _ = monitor.wait();
                return Err(io::Error::other(format!("{error}: {}", ends.last_words())));
            }
        };
        Ok(Started {
            remove: Box::new(move || drop(folder)),
            order,
            ends,
            inside,
            monitor,
            first,
            door,
        })
    }

    /// The bundle's description.
    fn config(&self, order: &Order, door: Option<&Door>) -> Value {
        let container = Container::new(&self.environment, order, World::Machine, "gvisor", door);
        let variables = container.variables.iter();
        let variables: Vec<String> = variables
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let kinds = ["pid", "ipc", "uts", "mount", "network"];
        let namespaces = kinds.map(|kind| json!({"type": kind}));
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]}),
            // Its own, which says nothing of the host, would be there otherwise.
            json!({"destination": "/sys", "type": "tmpfs", "source": "tmpfs", "options": ["ro", "mode=0555"]}),
        ];
        mounts.extend(container.mounts.iter().map(mount));
        json!({
            "ociVersion": "1.0.2",
            "hostname": "sandbox",
            "root": {"path": self.base.join("root"), "readonly": true},
            "process": {
                "terminal": false,
                // The only one there is in a rootless sandbox: the session's own user outside. Inside,
                // `boot.py` makes it an ordinary one.
                "user": {"uid": 0, "gid": 0},
                "args": container.command,
                "env": variables,
                "cwd": "/workspace",
                // `boot.py` gives `/dev` away and drops it.
                "capabilities": {"bounding": ["CAP_CHOWN"], "permitted": ["CAP_CHOWN"], "effective": ["CAP_CHOWN"]},
                "noNewPrivileges": true,
                "rlimits": [
                    {"type": "RLIMIT_CORE", "hard": 0, "soft": 0},
                    {"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024},
                ],
            },
            "mounts": mounts,
            "linux": {"namespaces": namespaces},
        })
    }
}

/// A mount in the words of OCI.
fn mount(mount: &Mount) -> Value {
    match mount {
        Mount::Temporary { to, bytes } => {
            let size = format!("size={bytes}");
            json!({"destination": to, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777", size]})
        }
        Mount::Bind { from, to, writable } => {
            let how = if *writable { "rw" } else { "ro" };
            json!({"destination": to, "type": "bind", "source": from, "options": ["rbind", how, "nosuid", "nodev"]})
        }
    }
}

#[async_trait]
impl Engine for Gvisor {
    fn holds_to_hosts(&self) -> bool {
        true
    }

    fn allow_for_itself(&self, limits: &mut Limits) {
        let stubs = limits.processes.saturating_mul(STUBS);
        limits.processes = limits
            .processes
            .saturating_add(stubs)
            .saturating_add(HELPERS);
        limits.memory_mib = limits.memory_mib.saturating_add(KERNEL_MIB);
    }

    /// The control groups are around its kernel, which dies as a whole when it meets them: they are the
    /// last resort.
    fn wants_rlimits(&self) -> bool {
        true
    }

    async fn launch(&self, order: Order) -> Result<Sandbox, InterpreterError> {
        let (worker, this) = (self.worker.clone(), self.clone());
        let failed = |source| InterpreterError::Start(format!("gVisor: {source}"));
        let started = worker.run(move || this.try_launch(order)).await?;
        started.and_then(connect).map_err(failed)
    }
}

/// Connect a sandbox, and end it when the host's kernel kills any part of it for its memory: gVisor's
/// would wait for that part for ever.
fn connect(started: Started) -> io::Result<Sandbox> {
    let out_of_memory = started.order.group.witness();
    let first = started.first.try_clone()?;
    // SAFETY: it owns a valid descriptor, which is never replaced.
    let whole = unsafe { AsyncFd::register_with_interest(first, Interest::READABLE) }?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = whole.readable() => return,
                () = tokio::time::sleep(LOOK) => {}
            }
            if out_of_memory() {
                let _ = rustix::process::pidfd_send_signal(whole.get_ref(), Signal::KILL);
                return;
            }
        }
    });
    started.connect()
}

/// Remove what processes that are gone have left.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split_once('-'));
        if owner.is_some_and(|(pid, _)| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The process that holds the sandbox, once it is named.
fn first_process(file: &Path, monitor: &mut Child) -> io::Result<OwnedFd> {
    let until = Instant::now() + PATIENCE;
    loop {
        let pid = fs::read_to_string(file)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            return Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?);
        }
        if let Some(status) = monitor.try_wait()? {
            return Err(io::Error::other(format!("runsc has ended ({status})")));
        }
        if Instant::now() > until {
            return Err(io::Error::other("runsc did not start in time"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
