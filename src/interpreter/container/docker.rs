//! Containers made by docker or podman, one for each process of a session, removed when it ends. The
//! runner's sockets and streams come over the attached input and output of `run` (`relay.rs`).

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use async_trait::async_trait;

use super::describe::{Container, Mount, PLACES, World, door, mount_points};
use super::program::{self, Program};
use super::relay::{Started, first_of};
use super::settings::EngineSettings;
use crate::interpreter::cgroup::Cgroups;
use crate::interpreter::child::enter;
use crate::interpreter::engine::{Bounds, Engine, Order};
use crate::interpreter::environment::Environment;
use crate::interpreter::local::Ground;
use crate::interpreter::network::Door;
use crate::interpreter::sandbox::{Ends, Sandbox};
use crate::interpreter::view::View;
use crate::interpreter::worker::Worker;
use crate::interpreter::{InterpreterError, Limits};

/// How long the engine may take to answer a question, and to take an image in.
const PATIENCE: Duration = Duration::from_secs(60);

/// The relay in the container; a way out is one more thread of it.
const OURS: u64 = 1;

/// Processes and threads of podman's client and monitor, where those are in a session's control group.
const HELPERS: u64 = 96;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::interpreter) enum Kind {
    Docker,
    Podman,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

/// The engine of this machine.
#[derive(Clone)]
pub(in crate::interpreter) struct Docker {
    kind: Kind,
    program: Program,
    environment: Environment,
    settings: EngineSettings,
    image: String,
    /// Whether containers stay in our control groups, rather than in the engine's.
    joins: bool,
    /// Who sessions are, where the order does not say it: this user and group.
    us: (u32, u32),
    /// Starts processes.
    worker: Worker,
}

impl Docker {
    /// Find it, ask whether it works, and make its image where settings name none.
    pub(in crate::interpreter) fn find(
        kind: Kind,
        settings: &EngineSettings,
        ground: &Ground,
    ) -> Result<Self, InterpreterError> {
        let name = kind.name();
        let remedy = format!(
            "Install it with: apt-get install {}",
            match kind {
                Kind::Docker => "docker.io",
                Kind::Podman => "podman",
            }
        );
        let program = Program::find(name, settings.program.as_deref(), &remedy)?;
        let (cgroups, id) = (Cgroups::detect(), rustix::process::geteuid());
        let mut this = Self {
            kind,
            program,
            environment: ground.environment.clone(),
            settings: settings.clone(),
            image: String::new(),
            joins: kind == Kind::Podman && cgroups.bounds_memory() && cgroups.bounds_processes(),
            us: (id.as_raw(), rustix::process::getegid().as_raw()),
            worker: ground.worker.clone(),
        };
        let (question, asking) = (this.clone(), ground.worker.clone());
        let image = asking.run_blocking(move || question.prepare());
        let gone = || Err("the launcher has ended".to_owned());
        this.image = image.unwrap_or_else(gone).map_err(|complaint| {
            InterpreterError::Unavailable(format!("{name}: {}", explained(kind, &complaint)))
        })?;
        Ok(this)
    }

    fn ask(&self, arguments: &[&str], input: &[u8]) -> Result<String, String> {
        let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        self.program.ask(&arguments, input, PATIENCE)
    }

    /// See that it answers, remove what processes that are gone have left, and find the image.
    fn prepare(&self) -> Result<String, String> {
        let list = [
            "ps",
            "--all",
            "--filter",
            "label=pybench",
            "--format",
            "{{.Names}}",
        ];
        for name in self.ask(&list, b"")?.lines().filter(|name| is_orphan(name)) {
            let _ = self.ask(&["rm", "--force", name], b""); // another process may be faster
        }
        match &self.settings.image {
            Some(image) => match self.ask(&["image", "inspect", image], b"") {
                Ok(_) => Ok(image.clone()),
                Err(error) => Err(format!(
                    "the image {image} is not there ({error}). Get it with: {} pull {image}",
                    self.kind.name()
                )),
            },
            None => self.image_of_places(),
        }
    }

    /// The image of a root folder that holds nothing but the places where this machine's own system is
    /// mounted; made once.
    fn image_of_places(&self) -> Result<String, String> {
        let view = View::new(&self.environment, None, false);
        let (binds, links, caches) = (&view.binds, &view.links, &view.caches);
        let digest = blake3::hash(format!("{PLACES:?} {binds:?} {links:?} {caches:?}").as_bytes());
        let image = format!("localhost/pybench-places:{}", &digest.to_hex()[..16]);
        if self.ask(&["image", "inspect", &image], b"").is_ok() {
            return Ok(image);
        }
        let archive = places(&view).map_err(|error| format!("making an image: {error}"))?;
        self.ask(&["import", "-", &image], &archive)?;
        Ok(image)
    }

    /// The command line of a session, after the program.
    fn arguments(&self, order: &Order, name: &str, door: Option<&Door>) -> Vec<String> {
        let world = match self.settings.image {
            Some(_) => World::Image,
            None => World::Machine,
        };
        let container = Container::new(&self.environment, order, world, "attached", door);
        let limits = &order.spec.limits;
        let mut words = Words::default();
        words.flags("run --rm --interactive --pull never");
        words.pair("--name", name);
        words.pair("--label", &format!("pybench={}", std::process::id()));
        words.flags("--network none --ipc private --hostname sandbox --read-only");
        words.flags("--cap-drop ALL --security-opt no-new-privileges");
        words.flags(
            "--ulimit core=0:0 --ulimit nofile=1024:1024 --log-driver none --no-healthcheck",
        );
        let (user, group) = order.user.map_or(self.us, |id| (id, id));
        words.pair("--user", &format!("{user}:{group}"));
        if self.kind == Kind::Podman {
            // What podman would otherwise add of its own: proxies, host names, writable folders.
            words.flags("--http-proxy=false --no-hosts --read-only-tmpfs=false --systemd=false --sdnotify ignore");
            // It would raise this limit to what it has no right to everywhere.
            words.flags("--ulimit nproc=4096:4096");
            if self.us.0 != 0 {
                words.flags("--userns keep-id");
            }
        }
        self.bound(&mut words, limits, OURS + u64::from(door.is_some()));
        self.choose(&mut words);
        for mount in &container.mounts {
            words.mount(mount);
        }
        for (variable, value) in &container.variables {
            words.pair("--env", &format!("{variable}={value}"));
        }
        words.pair("--workdir", "/workspace");
        let (begin, rest) = container
            .command
            .split_first()
            .map_or(("", &[][..]), |(b, r)| (b, r));
        words.pair("--entrypoint", begin);
        words.0.push(self.image.clone());
        words.0.extend_from_slice(rest);
        words.0
    }

    /// `ours` are processes and threads in it that are not the session's.
    fn bound(&self, words: &mut Words, limits: &Limits, ours: u64) {
        if self.joins {
            return words.flags("--cgroups disabled");
        }
        words.pair("--pids-limit", &(limits.processes + ours).to_string());
        let memory = format!("{}m", limits.memory_mib);
        words.pair("--memory", &memory);
        words.pair("--memory-swap", &memory); // both together: no swap
    }

    fn choose(&self, words: &mut Words) {
        let settings = &self.settings;
        if let Some(runtime) = &settings.runtime {
            words.pair("--runtime", runtime);
        }
        if let Some(profile) = &settings.seccomp {
            words.pair("--security-opt", &format!("seccomp={}", profile.display()));
        }
        if let Some(cpus) = settings.cpus {
            words.pair("--cpus", &cpus.to_string());
        }
    }

    /// Start a container. Must run on a thread of the launcher.
    fn try_launch(&self, order: Order) -> io::Result<Started> {
        let name = format!(
            "pybench-{}-{:016x}",
            std::process::id(),
            rand::random::<u64>()
        );
        let (ends, inside) = Ends::make()?;
        let door = door(&self.environment, &order)?;
        let mut command = self.program.command();
        let joins = order.group.joins()?;
        // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
        unsafe { command.pre_exec(move || enter(&joins, &[], None)) };
        let monitor = command
            .args(self.arguments(&order, &name, door.as_ref()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(ends.streams[1].try_clone()?)
            .spawn()?;
        Ok(Started {
            first: first_of(&monitor)?,
            remove: self.remove(name),
            order,
            ends,
            inside,
            monitor,
            door,
        })
    }

    fn remove(&self, name: String) -> Box<dyn FnOnce() + Send> {
        let mut command: Command = self.program.command();
        command
            .args(["rm", "--force", &name])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Box::new(move || {
            let ended = command
                .spawn()
                .and_then(|child| program::wait(child, PATIENCE));
            if let Ok(None) | Err(_) = ended {
                tracing::warn!("the container {name} may be left");
            }
        })
    }
}

#[async_trait]
impl Engine for Docker {
    async fn launch(&self, order: Order) -> Result<Sandbox, InterpreterError> {
        let (worker, this) = (self.worker.clone(), self.clone());
        let failed = |source| InterpreterError::Start(format!("{}: {source}", self.kind.name()));
        let started = worker.run(move || this.try_launch(order)).await?;
        started.and_then(Started::connect).map_err(failed)
    }

    fn explain(&self, words: String) -> String {
        explained(self.kind, &words)
    }

    fn holds_to_hosts(&self) -> bool {
        true
    }

    fn allow_for_itself(&self, limits: &mut Limits) {
        limits.processes = limits.processes.saturating_add(HELPERS);
    }

    fn bounds(&self) -> Option<Bounds> {
        let engine = Bounds {
            memory: true,
            processes: true,
        };
        (!self.joins).then_some(engine)
    }
}

/// What an engine complains of, and what to do about it.
fn explained(kind: Kind, complaint: &str) -> String {
    let lower = complaint.to_lowercase();
    let says = |text: &str| lower.contains(text);
    let remedy = match kind {
        Kind::Docker if says("permission denied") => {
            "This user may not talk to the daemon: use rootless docker, or podman"
        }
        Kind::Docker if says("cannot connect") || says("connection refused") => {
            "Start the daemon (systemctl start docker), or set DOCKER_HOST to one on this machine"
        }
        Kind::Podman if says("newuidmap") || says("subuid") => {
            "Install uidmap and give this user a range in /etc/subuid and /etc/subgid"
        }
        Kind::Podman if says("crun") && says("hybrid") => {
            "This machine has control groups of both versions (/sys/fs/cgroup/unified beside those of version \
             1), which podman's runtime crun refuses. Boot with systemd.unified_cgroup_hierarchy=1, or unmount \
             /sys/fs/cgroup/unified, or install runc and name it as `runtime` of [podman] in the file that \
             PYBENCH_CONTAINERS names (docs/interpreter.md, Settings)"
        }
        _ => return complaint.to_owned(),
    };
    format!("{complaint}. {remedy}")
}

/// Whether a container's name is ours and its process gone.
fn is_orphan(name: &str) -> bool {
    let pid = name
        .strip_prefix("pybench-")
        .and_then(|rest| rest.split('-').next());
    let pid = pid.filter(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()));
    pid.is_some_and(|pid| !PathBuf::from("/proc").join(pid).exists())
}

/// An archive of the places of a view.
fn places(view: &View) -> io::Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    mount_points(folder.path(), view)?;
    let archive = tempfile::NamedTempFile::new()?;
    let status = Command::new("tar")
        .args([
            "--create",
            "--owner=0",
            "--group=0",
            "--mtime=@0",
            "--mode=755",
            "--file",
        ])
        .arg(archive.path())
        .arg("--directory")
        .arg(folder.path())
        .arg(".")
        .stdin(Stdio::null())
        .status()?;
    match status.success() {
        true => fs::read(archive.path()),
        false => Err(io::Error::other("tar has failed")),
    }
}

#[derive(Default)]
struct Words(Vec<String>);

impl Words {
    /// Words without blanks in them.
    fn flags(&mut self, words: &str) {
        self.0.extend(words.split_whitespace().map(str::to_owned));
    }

    fn pair(&mut self, flag: &str, value: &str) {
        self.0.extend([flag.to_owned(), value.to_owned()]);
    }

    fn mount(&mut self, mount: &Mount) {
        match mount {
            Mount::Temporary {
                to: "/dev/shm",
                bytes,
            } => self.pair("--shm-size", &bytes.to_string()),
            Mount::Temporary { to, bytes } => {
                self.pair(
                    "--tmpfs",
                    &format!("{to}:rw,nosuid,nodev,exec,mode=1777,size={bytes}"),
                );
            }
            Mount::Bind { from, to, writable } => {
                let (from, to) = (field("src", from), field("dst", to));
                let how = if *writable { "" } else { ",readonly" };
                self.pair("--mount", &format!("type=bind,{from},{to}{how}"));
            }
        }
    }
}

/// A field of `--mount`, which is read as a line of CSV.
fn field(name: &str, path: &Path) -> String {
    let field = format!("{name}={}", path.display());
    match field.contains([',', '"', '\n']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field,
    }
}

#[cfg(test)]
#[path = "docker_tests.rs"]
mod tests;
