//! Sandboxes made by gVisor's `runsc`: a kernel of its own, in user space, for each session. Rootless,
//! without network, from an OCI bundle; the runner's socket is its standard input, and what it prints
//! goes into the host's files, as everywhere.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde_json::{Value, json};

use crate::interpreter::InterpreterError;
use crate::interpreter::child::enter;
use crate::interpreter::engine::{Engine, Order};
use crate::interpreter::environment::Environment;
use crate::interpreter::sandbox::{Ends, First, Keeper, Sandbox};
use crate::interpreter::view::View;
use crate::interpreter::worker::Worker;

/// Threads of `runsc`, of its sandbox and of what serves files to it.
const HELPERS: u64 = 128;

/// How long `runsc` may take to name its process.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the runner on standard input; interrupts come as signals, so its second socket stays silent.
const BEGIN: &str = "import os, socket, sys; control = os.dup(0); os.dup2(os.open('/dev/null', os.O_RDONLY), 0); \
     silent, other = socket.socketpair(); sys.path.insert(0, '/opt/pybench/lib'); \
     from pybench_runner import runner; runner.main(control, silent.detach())";

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
    fn try_launch(&self, order: Order) -> io::Result<Sandbox> {
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
        let config = self.config(&order);
        fs::write(folder.path().join("config.json"), config.to_string())?;

        let (ends, [control, interrupt]) = Ends::make()?;
        let mut command = self.command(&state, order.user, order.group.joins()?);
        command
            .args(["run", "--pid-file"])
            .arg(state.join("pid"))
            .arg("--bundle")
            .arg(folder.path())
            .arg(&name)
            .stdin(control)
            .stdout(ends.streams[0].try_clone()?)
            .stderr(ends.streams[1].try_clone()?);
        let mut monitor = command.spawn()?;
        drop(command); // and with it our copy of the sandbox's end
        let init = match first_process(&state.join("pid"), &mut monitor) {
            Ok(init) => init,
            Err(error) => {
                let _ = monitor.kill();
                let _ = monitor.wait();
                return Err(io::Error::other(format!("{error}: {}", ends.last_words())));
            }
        };
        self.pass_interrupts(interrupt.into(), name, state, order.user);
        Ok(Sandbox {
            ends,
            init: First(init),
            group: order.group,
            keeper: Keeper::Gvisor {
                monitor,
                _folder: folder,
            },
        })
    }

    /// Let each byte that comes be a SIGINT to the runner, until the session has gone.
    fn pass_interrupts(&self, from: UnixStream, name: String, state: PathBuf, user: Option<u32>) {
        let this = self.clone();
        let pass = move || {
            let mut bytes = [0; 64];
            while matches!((&from).read(&mut bytes), Ok(count) if count > 0) {
                let mut kill = this.command(&state, user, Vec::new());
                kill.args(["kill", &name, "INT"]);
                let quiet = kill.stdout(Stdio::null()).stderr(Stdio::null());
                if let Err(error) = quiet.status() {
                    tracing::warn!("interrupting a session in gVisor: {error}");
                }
            }
        };
        let thread = std::thread::Builder::new().name("gvisor-interrupts".to_owned());
        if let Err(error) = thread.spawn(pass) {
            tracing::warn!("interrupts will not reach a session in gVisor: {error}");
        }
    }

    /// The bundle's description.
    fn config(&self, order: &Order) -> Value {
        let view = View::of(&self.environment, &order.spec);
        let variables = view.variables.iter();
        let variables: Vec<String> = variables
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let kinds = ["pid", "ipc", "uts", "mount", "network"];
        let namespaces = kinds.map(|kind| json!({"type": kind}));
        json!({
            "ociVersion": "1.0.2",
            "hostname": "sandbox",
            "root": {"path": self.base.join("root"), "readonly": true},
            "process": {
                "terminal": false,
                // The only one there is in a rootless sandbox: the session's own user outside.
                "user": {"uid": 0, "gid": 0},
                "args": ["/opt/env/bin/python", "-P", "-u", "-c", BEGIN],
                "env": variables,
                "cwd": "/workspace",
                "capabilities": {},
                "noNewPrivileges": true,
            },
            "mounts": self.mounts(&view, order),
            "linux": {"namespaces": namespaces},
        })
    }

    fn mounts(&self, view: &View, order: &Order) -> Vec<Value> {
        let temporary = |path: &str| {
            let size = format!("size={}", order.temporary());
            json!({"destination": path, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777", size]})
        };
        let bind = |from: &Path, to: &Path, how: &str| json!({"destination": to, "type": "bind", "source": from, "options": ["rbind", how]});
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs"}),
            temporary("/dev/shm"),
            temporary("/tmp"),
        ];
        mounts.extend(view.binds.iter().map(|(from, to)| bind(from, to, "ro")));
        for (from, to) in &view.caches {
            let from = from.strip_prefix("/opt/env").unwrap_or(from);
            mounts.push(bind(&self.environment.root.join(from), to, "ro"));
        }
        let workspace = order.workspace.path();
        mounts.push(bind(workspace, Path::new("/workspace"), "rw"));
        let read_only = order.workspace.read_only().iter();
        mounts.extend(read_only.map(|inner| {
            bind(
                &workspace.join(inner),
                &Path::new("/workspace").join(inner),
                "ro",
            )
        }));
        mounts
    }
}

#[async_trait]
impl Engine for Gvisor {
    fn warnings(&self) -> Vec<&'static str> {
        vec![
            "the tier `gvisor` is new: cells run as root of a user-space kernel, and the attack suite does \
             not pass in it yet; `jail` is the tier that it proves",
        ]
    }

    fn helpers(&self) -> u64 {
        HELPERS
    }

    async fn launch(&self, order: Order) -> Result<Sandbox, InterpreterError> {
        let (worker, this) = (self.worker.clone(), self.clone());
        let failed = |source| InterpreterError::Start(format!("gVisor: {source}"));
        worker
            .run(move || this.try_launch(order))
            .await?
            .map_err(failed)
    }
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

/// Make the places where a view is mounted, and its links.
fn mount_points(root: &Path, view: &View) -> io::Result<()> {
    let inside = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    for folder in [
        "proc",
        "dev",
        "sys",
        "tmp",
        "etc",
        "workspace",
        "opt/wheelhouse",
    ] {
        fs::create_dir_all(root.join(folder))?;
    }
    // `runsc` mounts all of them into this folder first, those below `/tmp` too.
    let caches = view
        .caches
        .iter()
        .map(|(_, to)| (Path::new(""), to.as_path()));
    let binds = view
        .binds
        .iter()
        .map(|(from, to)| (from.as_path(), to.as_path()));
    for (from, to) in binds.chain(caches) {
        let to = inside(to);
        if from.is_dir() {
            fs::create_dir_all(&to)?;
        } else {
            fs::create_dir_all(to.parent().unwrap_or(root))?;
            File::options().append(true).create(true).open(&to)?;
        }
    }
    for (target, path) in &view.links {
        match std::os::unix::fs::symlink(target, inside(path)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
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
