//! The tiers `docker` and `podman`: one container for each process of a session, removed when it ends. The
//! runner's sockets and streams go over the stdin and stdout of `docker run` (`relay.rs`).

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use async_trait::async_trait;

use super::container_spec::{
    Container, MOUNT_POINTS, Mount, SystemSource, mount_points, proxy_socket,
};
use super::program::{self, Program};
use super::relay::{StartedContainer, client_pidfd};
use super::settings::EngineSettings;
use pybench_interpreter::cgroup::{CPU_PERIOD, Cgroups, cpu_quota};
use pybench_interpreter::child::enter;
use pybench_interpreter::engine::HostEnv;
use pybench_interpreter::engine::{EnforcedLimits, Engine, LaunchSpec};
use pybench_interpreter::environment::Environment;
use pybench_interpreter::mount_spec::MountSpec;
use pybench_interpreter::network::ProxySocket;
use pybench_interpreter::sandbox::{HostIo, Sandbox};
use pybench_interpreter::worker::Worker;
use pybench_interpreter::{InterpreterError, Limits};

/// Time limit of one client command, including an image import.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The relay process in the container; the network relay is one more thread.
const RELAY_PROCESSES: u64 = 1;

/// Processes and threads of podman's client and monitor, if they run in the session's control group.
const HELPERS: u64 = 96;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
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

/// A Docker or Podman engine on this machine.
#[derive(Clone)]
pub(crate) struct Docker {
    kind: Kind,
    program: Program,
    environment: Environment,
    settings: EngineSettings,
    image: String,
    /// Whether containers join our control groups instead of the engine's.
    cgroup_files: bool,
    /// Our own user and group: the default for sessions.
    own_ids: (u32, u32),
    worker: Worker,
}

impl Docker {
    /// Finds the client, checks that the engine works, and creates an image if the settings name none.
    pub(crate) fn find(
        kind: Kind,
        settings: &EngineSettings,
        host: &HostEnv,
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
            environment: host.environment.clone(),
            settings: settings.clone(),
            image: String::new(),
            cgroup_files: kind == Kind::Podman
                && cgroups.bounds_memory()
                && cgroups.bounds_processes(),
            own_ids: (id.as_raw(), rustix::process::getegid().as_raw()),
            worker: host.worker.clone(),
        };
        let (question, asking) = (this.clone(), host.worker.clone());
        let image = asking.run_blocking(move || question.prepare());
        let stopped = || Err("the launcher thread has stopped".to_owned());
        this.image = image.unwrap_or_else(stopped).map_err(|complaint| {
            InterpreterError::Unavailable(format!("{name}: {}", explain_error(kind, &complaint)))
        })?;
        Ok(this)
    }

    fn ask(&self, arguments: &[&str], input: &[u8]) -> Result<String, String> {
        let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        self.program.ask(&arguments, input, TIMEOUT)
    }

    /// Removes containers that dead processes have left, and finds or creates the image.
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
            let _ = self.ask(&["rm", "--force", name], b""); // another process may have removed it
        }
        match &self.settings.image {
            Some(image) => match self.ask(&["image", "inspect", image], b"") {
                Ok(_) => Ok(image.clone()),
                Err(error) => Err(format!(
                    "there is no local image {image} ({error}). Pull it with: {} pull {image}",
                    self.kind.name()
                )),
            },
            None => self.mount_point_image(),
        }
    }

    /// An image with nothing but mount points for this machine's own system; created once.
    fn mount_point_image(&self) -> Result<String, String> {
        let mount_spec = MountSpec::new(&self.environment, None, false);
        let (binds, links, caches) = (&mount_spec.binds, &mount_spec.links, &mount_spec.caches);
        let digest =
            blake3::hash(format!("{MOUNT_POINTS:?} {binds:?} {links:?} {caches:?}").as_bytes());
        let image = format!("localhost/pybench-places:{}", &digest.to_hex()[..16]);
        if self.ask(&["image", "inspect", &image], b"").is_ok() {
            return Ok(image);
        }
        let archive = places(&mount_spec).map_err(|error| format!("creating an image: {error}"))?;
        self.ask(&["import", "-", &image], &archive)?;
        Ok(image)
    }

    /// The arguments of the client command that starts a session's container.
    fn arguments(
        &self,
        launch_spec: &LaunchSpec,
        name: &str,
        proxy_socket: Option<&ProxySocket>,
    ) -> Vec<String> {
        let source = match self.settings.image {
            Some(_) => SystemSource::Image,
            None => SystemSource::Host,
        };
        let container = Container::new(
            &self.environment,
            launch_spec,
            source,
            "attached",
            proxy_socket,
        );
        let limits = &launch_spec.spec.limits;
        let mut arguments = Arguments::default();
        arguments.flags("run --rm --interactive --pull never");
        arguments.pair("--name", name);
        arguments.pair("--label", &format!("pybench={}", std::process::id()));
        arguments.flags("--network none --ipc private --hostname sandbox --read-only");
        arguments.flags("--cap-drop ALL --security-opt no-new-privileges");
        arguments
            .flags("--ulimit core=0:0 --ulimit nofile=1024:1024 --ulimit sigpending=1024:1024");
        arguments.flags("--log-driver none --no-healthcheck");
        let (user, group) = launch_spec.user.map_or(self.own_ids, |id| (id, id));
        arguments.pair("--user", &format!("{user}:{group}"));
        if self.kind == Kind::Podman {
            // Disable what podman adds by default: proxy variables, host names, writable folders.
            arguments.flags("--http-proxy=false --no-hosts --read-only-tmpfs=false --systemd=false --sdnotify ignore");
            // By default podman raises this limit, which fails without the privilege.
            arguments.flags("--ulimit nproc=4096:4096");
            if self.own_ids.0 != 0 {
                arguments.flags("--userns keep-id");
            }
        }
        self.bound(
            &mut arguments,
            limits,
            RELAY_PROCESSES + u64::from(proxy_socket.is_some()),
        );
        self.choose(&mut arguments);
        for mount in &container.mounts {
            arguments.mount(mount);
        }
        for (variable, value) in &container.variables {
            arguments.pair("--env", &format!("{variable}={value}"));
        }
        arguments.pair("--workdir", "/workspace");
        let (begin, rest) = container
            .command
            .split_first()
            .map_or(("", &[][..]), |(b, r)| (b, r));
        arguments.pair("--entrypoint", begin);
        arguments.0.push(self.image.clone());
        arguments.0.extend_from_slice(rest);
        arguments.0
    }

    /// The processors of a session: the lower one of its limit and the settings'.
    fn cpus(&self, limits: &Limits) -> f64 {
        self.settings
            .cpus
            .map_or(limits.cpus, |most| most.min(limits.cpus))
    }

    /// Whether the engine limits processors. Systemd gives the users of rootless podman no control over them unless
    /// it is told to, and podman then fails.
    fn bounds_cpus(&self) -> bool {
        self.kind == Kind::Docker || self.own_ids.0 == 0 || self.settings.cpus.is_some()
    }

    /// Adds resource limits. `ours`: processes and threads in the container that are not the session's.
    fn bound(&self, arguments: &mut Arguments, limits: &Limits, ours: u64) {
        if self.cgroup_files {
            return arguments.flags("--cgroups disabled");
        }
        arguments.pair("--pids-limit", &(limits.processes + ours).to_string());
        let memory = format!("{}m", limits.memory_mib);
        arguments.pair("--memory", &memory);
        arguments.pair("--memory-swap", &memory); // memory plus swap: no swap
        if self.bounds_cpus() {
            // Not `--cpus`: it refuses more processors than the machine has.
            arguments.pair("--cpu-period", &CPU_PERIOD.to_string());
            arguments.pair("--cpu-quota", &cpu_quota(self.cpus(limits)).to_string());
        }
    }

    fn choose(&self, arguments: &mut Arguments) {
        let settings = &self.settings;
        if let Some(runtime) = &settings.runtime {
            arguments.pair("--runtime", runtime);
        }
        if let Some(profile) = &settings.seccomp {
            arguments.pair("--security-opt", &format!("seccomp={}", profile.display()));
        }
    }

    /// Starts a container. Must run on a launcher thread.
    fn try_launch(&self, launch_spec: LaunchSpec) -> io::Result<StartedContainer> {
        let name = format!(
            "pybench-{}-{:016x}",
            std::process::id(),
            rand::random::<u64>()
        );
        let (host_io, inside) = HostIo::make()?;
        let proxy_socket = proxy_socket(&self.environment, &launch_spec)?;
        let mut command = self.program.command();
        let cgroup_files = launch_spec.group.cgroup_files()?;
        // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
        unsafe { command.pre_exec(move || enter(&cgroup_files, &[], None)) };
        let monitor = command
            .args(self.arguments(&launch_spec, &name, proxy_socket.as_ref()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(host_io.streams[1].try_clone()?)
            .spawn()?;
        Ok(StartedContainer {
            main_process: client_pidfd(&monitor)?,
            remove: self.remove(name),
            launch_spec,
            host_io,
            inside,
            monitor,
            proxy_socket,
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
                .and_then(|child| program::wait(child, TIMEOUT));
            if let Ok(None) | Err(_) = ended {
                tracing::warn!(
                    "the container {name} could not be removed; remove it with: rm --force {name}"
                );
            }
        })
    }
}

#[async_trait]
impl Engine for Docker {
    async fn launch(&self, launch_spec: LaunchSpec) -> Result<Sandbox, InterpreterError> {
        let (worker, this) = (self.worker.clone(), self.clone());
        let failed = |source| InterpreterError::Start(format!("{}: {source}", self.kind.name()));
        let started = worker.run(move || this.try_launch(launch_spec)).await?;
        started.and_then(StartedContainer::connect).map_err(failed)
    }

    fn explain(&self, stderr: String) -> String {
        explain_error(self.kind, &stderr)
    }

    fn supports_allowlist(&self) -> bool {
        true
    }

    fn has_pid_namespace(&self) -> bool {
        true
    }

    fn add_overhead(&self, limits: &mut Limits) {
        limits.processes = limits.processes.saturating_add(HELPERS);
        limits.cpus = self.cpus(limits);
    }

    fn enforced_limits(&self) -> Option<EnforcedLimits> {
        let engine = EnforcedLimits {
            memory: true,
            processes: true,
            cpus: self.bounds_cpus(),
        };
        (!self.cgroup_files).then_some(engine)
    }
}

/// Adds a remedy to a known error message of an engine.
fn explain_error(kind: Kind, complaint: &str) -> String {
    let lower = complaint.to_lowercase();
    let says = |text: &str| lower.contains(text);
    let remedy = match kind {
        Kind::Docker if says("permission denied") => {
            "This user may not access the Docker daemon: use rootless Docker, or the tier podman"
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
             PYBENCH_CONTAINERS names (docs/containers.md, Settings)"
        }
        _ => return complaint.to_owned(),
    };
    format!("{complaint}. {remedy}")
}

/// Whether a container name is ours and its process is dead.
fn is_orphan(name: &str) -> bool {
    let pid = name
        .strip_prefix("pybench-")
        .and_then(|rest| rest.split('-').next());
    let pid = pid.filter(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()));
    pid.is_some_and(|pid| !PathBuf::from("/proc").join(pid).exists())
}

/// A tar archive of the mount points.
fn places(mount_spec: &MountSpec) -> io::Result<Vec<u8>> {
    let folder = tempfile::tempdir()?;
    mount_points(folder.path(), mount_spec)?;
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
        false => Err(io::Error::other("tar failed")),
    }
}

#[derive(Default)]
struct Arguments(Vec<String>);

impl Arguments {
    /// Adds flags separated by spaces.
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

/// A field of `--mount`, quoted as CSV.
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
