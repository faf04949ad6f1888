//! The `gvisor` tier: gVisor's `runsc` gives each session its own kernel in user space; rootless, without
//! network, from an OCI bundle. The runner's sockets and streams go over stdin and stdout (`relay.rs`),
//! because gVisor's kernel does not limit the size of a host file that is passed in.

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

use super::container_spec::{Container, Mount, SystemSource, mount_points, proxy_socket};
use super::relay::StartedContainer;
use pybench_interpreter::child::enter;
use pybench_interpreter::engine::{Engine, LaunchSpec};
use pybench_interpreter::environment::Environment;
use pybench_interpreter::mount_spec::MountSpec;
use pybench_interpreter::network::ProxySocket;
use pybench_interpreter::sandbox::{HostIo, Sandbox, remove_stale};
use pybench_interpreter::worker::Worker;
use pybench_interpreter::{InterpreterError, Limits};

/// Threads of `runsc`, its sandbox and its file server.
const HELPERS: u64 = 128;

/// Host threads for each thread in the sandbox.
const HOST_THREADS_PER_THREAD: u64 = 8;

/// Memory of gVisor's kernel and its file server, MiB.
const KERNEL_MIB: u64 = 128;

/// How often to check whether the OOM killer has killed part of a sandbox.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How long `runsc` may take to write its PID file.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The installed `runsc`.
#[derive(Clone)]
pub(crate) struct Gvisor {
    program: PathBuf,
    environment: Environment,
    /// Folder of the mount points and of running sandboxes.
    base: PathBuf,
    worker: Worker,
}

impl Gvisor {
    /// Finds `runsc` and creates the root folder that all sandboxes share.
    pub(crate) fn find(environment: Environment, worker: Worker) -> Result<Self, InterpreterError> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders = std::env::split_paths(&path).map(|folder| folder.join("runsc"));
        let program = folders.find(|path| path.is_file()).ok_or_else(|| {
            let text = "gVisor is missing. Install it with: apt-get install runsc";
            InterpreterError::Unavailable(text.to_owned())
        })?;
        let base = environment.cache.join("gvisor");
        let mount_spec = MountSpec::new(&environment, None, false);
        remove_stale(&base);
        mount_points(&base.join("root"), &mount_spec).map_err(|error| {
            InterpreterError::Unavailable(format!("preparing {}: {error}", base.display()))
        })?;
        Ok(Self {
            program,
            environment,
            base,
            worker,
        })
    }

    /// The `runsc` command with common options.
    fn command(&self, state: &Path, user: Option<u32>, cgroup_files: Vec<File>) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(["--rootless", "--network=none", "--ignore-cgroups", "--root"])
            .arg(state)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir("/")
            .process_group(0) // a signal to our group must not end a session
            .stdin(Stdio::null());
        // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
        unsafe {
            command.pre_exec(move || {
                enter(&cgroup_files, &[], user)?;
                // When `runsc` dies, its sandbox dies too. Must come last: switching users resets it.
                Ok(rustix::process::set_parent_process_death_signal(Some(
                    Signal::KILL,
                ))?)
            })
        };
        command
    }

    /// Starts a sandbox. Must run on a launcher thread.
    fn try_launch(&self, launch_spec: LaunchSpec) -> io::Result<StartedContainer> {
        // `runsc` also uses this name for an abstract socket, which is visible on the whole machine.
        let name = format!("pybench-{:032x}", rand::random::<u128>());
        let folder = tempfile::Builder::new()
            .prefix(&format!("{}-", std::process::id()))
            .tempdir_in(&self.base)?;
        let state = folder.path().join("state");
        fs::create_dir(&state)?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        if let Some(user) = launch_spec.user {
            chown(&state, Some(user), Some(user))?;
        }
        let proxy_socket = proxy_socket(&self.environment, &launch_spec)?;
        let config = self.config(&launch_spec, proxy_socket.as_ref());
        fs::write(folder.path().join("config.json"), config.to_string())?;

        let (host_io, inside) = HostIo::make()?;
        let mut command = self.command(&state, launch_spec.user, launch_spec.group.cgroup_files()?);
        if proxy_socket.is_some() {
            // Lets the sandbox connect to mounted sockets; the proxy socket is the only one.
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
            .stderr(host_io.streams[1].try_clone()?);
        let mut monitor = command.spawn()?;
        let main_process = match first_process(&state.join("pid"), &mut monitor) {
            Ok(main_process) => main_process,
            Err(error) => {
                let _ = monitor.kill();
                let _ = monitor.wait();
                return Err(io::Error::other(format!(
                    "{error}: {}",
                    host_io.stderr_tail()
                )));
            }
        };
        Ok(StartedContainer {
            remove: Box::new(move || drop(folder)),
            launch_spec,
            host_io,
            inside,
            monitor,
            main_process,
            proxy_socket,
        })
    }

    /// The `config.json` of the OCI bundle.
    fn config(&self, launch_spec: &LaunchSpec, proxy_socket: Option<&ProxySocket>) -> Value {
        let container = Container::new(
            &self.environment,
            launch_spec,
            SystemSource::Host,
            "gvisor",
            proxy_socket,
        );
        let variables = container.variables.iter();
        let variables: Vec<String> = variables
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let kinds = ["pid", "ipc", "uts", "mount", "network"];
        let namespaces = kinds.map(|kind| json!({"type": kind}));
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid"]}),
            // Hides gVisor's own /sys.
            json!({"destination": "/sys", "type": "tmpfs", "source": "tmpfs", "options": ["ro", "mode=0555"]}),
        ];
        mounts.extend(container.mounts.iter().map(mount));
        json!({
            "ociVersion": "1.0.2",
            "hostname": "sandbox",
            "root": {"path": self.base.join("root"), "readonly": true},
            "process": {
                "terminal": false,
                // The only user in a rootless sandbox; outside it is the session's user. `boot.py` switches
                // to an ordinary user.
                "user": {"uid": 0, "gid": 0},
                "args": container.command,
                "env": variables,
                "cwd": "/workspace",
                // `boot.py` changes the owner of `/dev` and drops the capability.
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

/// A mount in OCI format.
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
    fn supports_allowlist(&self) -> bool {
        true
    }

    fn has_pid_namespace(&self) -> bool {
        true
    }

    fn add_overhead(&self, limits: &mut Limits) {
        let stubs = limits.processes.saturating_mul(HOST_THREADS_PER_THREAD);
        limits.processes = limits
            .processes
            .saturating_add(stubs)
            .saturating_add(HELPERS);
        limits.memory_mib = limits.memory_mib.saturating_add(KERNEL_MIB);
    }

    /// The control groups contain gVisor's kernel, and exceeding them kills the whole sandbox, so they are
    /// only a last resort.
    fn wants_rlimits(&self) -> bool {
        true
    }

    async fn launch(&self, launch_spec: LaunchSpec) -> Result<Sandbox, InterpreterError> {
        let (worker, this) = (self.worker.clone(), self.clone());
        let failed = |source| InterpreterError::Start(format!("gVisor: {source}"));
        let started = worker.run(move || this.try_launch(launch_spec)).await?;
        started.and_then(connect).map_err(failed)
    }
}

/// Connects a sandbox, and kills it when the OOM killer kills any part of it: gVisor would wait for that
/// part forever.
fn connect(started: StartedContainer) -> io::Result<Sandbox> {
    let out_of_memory = started.launch_spec.group.oom_watcher();
    let main_process = started.main_process.try_clone()?;
    // SAFETY: it owns a valid descriptor, which is never replaced.
    let whole = unsafe { AsyncFd::register_with_interest(main_process, Interest::READABLE) }?;
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = whole.readable() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            if out_of_memory() {
                let _ = rustix::process::pidfd_send_signal(whole.get_ref(), Signal::KILL);
                return;
            }
        }
    });
    started.connect()
}

/// Waits for the PID file and returns a pidfd of the sandbox process.
fn first_process(file: &Path, monitor: &mut Child) -> io::Result<OwnedFd> {
    let until = Instant::now() + TIMEOUT;
    loop {
        let pid = fs::read_to_string(file)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            return Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?);
        }
        if let Some(status) = monitor.try_wait()? {
            return Err(io::Error::other(format!("runsc exited ({status})")));
        }
        if Instant::now() > until {
            return Err(io::Error::other(format!(
                "runsc did not start within {} s",
                TIMEOUT.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
