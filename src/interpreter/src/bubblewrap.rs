//! The `bwrap` tier: each session is a new Python process in a bubblewrap sandbox.

use std::ffi::OsString;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;

use async_trait::async_trait;
use rustix::process::{Pid, PidfdFlags};
use serde::Deserialize;

use super::InterpreterError;
use super::child::spawn;
use super::engine::{Engine, LaunchSpec};
use super::environment::Environment;
use super::mount_spec::MountSpec;
use super::sandbox::{ChildGuard, HostIo, InitProcess, Sandbox, memfd};
use super::worker::Worker;

/// User and group inside the sandbox.
const INSIDE_ID: &str = "1000";

/// The installed bubblewrap.
#[derive(Clone)]
pub(super) struct Bubblewrap {
    program: PathBuf,
    /// Whether it supports `--disable-userns`.
    disable_userns: bool,
    environment: Environment,
    worker: Worker,
}

impl Bubblewrap {
    /// Finds bubblewrap in `PATH`.
    pub(super) fn find(environment: Environment, worker: Worker) -> Result<Self, InterpreterError> {
        let program = find_program()?;
        let disable_userns = version(&program)? >= (0, 8);
        Ok(Self {
            program,
            disable_userns,
            environment,
            worker,
        })
    }
}

#[async_trait]
impl Engine for Bubblewrap {
    async fn launch(&self, launch_spec: LaunchSpec) -> Result<Sandbox, InterpreterError> {
        let (worker, this) = (self.worker.clone(), self.clone());
        let launch = move || this.try_launch(launch_spec);
        let failed = |source| InterpreterError::Start(format!("bubblewrap: {source}"));
        worker.run(launch).await?.map_err(failed)
    }

    fn supports_allowlist(&self) -> bool {
        true
    }

    fn has_pid_namespace(&self) -> bool {
        true
    }

    fn warnings(&self) -> Vec<&'static str> {
        let old = "bubblewrap is older than 0.8: only the system call filter prevents nested user namespaces";
        if self.disable_userns {
            Vec::new()
        } else {
            vec![old]
        }
    }
}

impl Bubblewrap {
    /// Starts a sandbox. Must run on a launcher thread.
    fn try_launch(&self, launch_spec: LaunchSpec) -> io::Result<Sandbox> {
        let (host_io, [control, interrupt]) = HostIo::make()?;
        let (mut info, info_inside) = io::pipe()?;
        let filter = memfd("filter")?;
        (&filter).write_all(&super::seccomp::program())?;
        (&filter).rewind()?;
        let inside: [OwnedFd; 4] = [control, interrupt, info_inside.into(), filter.into()];
        let mut command = Command::new(&self.program);
        command
            .args(self.arguments(&launch_spec, inside.each_ref().map(AsRawFd::as_raw_fd)))
            .env_clear()
            .current_dir("/");
        let mut monitor = spawn(command, &host_io, &launch_spec, inside)?;
        let init = match first_process(&mut info) {
            Ok(init) => init,
            Err(_) => {
                let _ = monitor.kill();
                let _ = monitor.wait();
                return Err(io::Error::other(host_io.stderr_tail()));
            }
        };
        Ok(Sandbox {
            host_io,
            init: InitProcess(init),
            group: launch_spec.group,
            child_guard: ChildGuard::Bubblewrap(monitor),
            proxy_socket: None,
        })
    }

    /// The command line. `inside`: descriptors of control, interrupt, info and filter.
    fn arguments(&self, launch_spec: &LaunchSpec, inside: [i32; 4]) -> Vec<OsString> {
        let [control, interrupt, info, filter] = inside;
        let mount_spec = MountSpec::for_session(&self.environment, &launch_spec.spec);
        let mut args = Arguments::default();
        args.flags("--unshare-all --unshare-user --as-pid-1");
        args.flags("--die-with-parent --new-session --cap-drop ALL");
        if self.disable_userns {
            args.flags("--disable-userns");
        }
        args.flags("--hostname sandbox --clearenv");
        args.flags(&format!("--uid {INSIDE_ID} --gid {INSIDE_ID}"));
        args.mount_spec(
            &mount_spec,
            &self.environment.root,
            launch_spec.tmpfs_bytes(),
        );
        args.workspace(launch_spec);
        args.flags("--chdir /workspace --remount-ro /dev --remount-ro /");
        args.flags(&format!("--info-fd {info}"));
        if !super::seccomp::program().is_empty() {
            args.flags(&format!("--seccomp {filter}"));
        }
        args.flags("-- /opt/env/bin/python -P -u -c");
        args.add(format!(
            "import sys; sys.path.insert(0, '/opt/pybench/lib'); \
             from pybench_runner import jail; jail.begin({control}, {interrupt})"
        ));
        args.0
    }
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    /// Adds flags separated by spaces.
    fn flags(&mut self, words: &str) {
        self.0.extend(words.split_whitespace().map(OsString::from));
    }

    fn add(&mut self, word: impl Into<OsString>) -> &mut Self {
        self.0.push(word.into());
        self
    }

    fn bind(&mut self, how: &str, from: impl Into<OsString>, to: impl Into<OsString>) {
        self.add(how).add(from).add(to);
    }

    fn mount_spec(&mut self, mount_spec: &MountSpec, root: &Path, temporary: u64) {
        for (from, to) in &mount_spec.binds {
            self.bind("--ro-bind", from, to);
        }
        for (target, path) in &mount_spec.links {
            self.bind("--symlink", target, path);
        }
        self.flags("--proc /proc --dev /dev");
        for path in ["/dev/shm", "/tmp"] {
            self.flags(&format!("--size {temporary} --tmpfs {path}"));
        }
        for folder in &mount_spec.temporary {
            self.add("--dir").add(folder);
        }
        for (from, to) in &mount_spec.caches {
            let from = from.strip_prefix("/opt/env").unwrap_or(from);
            self.bind("--ro-bind", root.join(from), to);
        }
        for (name, value) in &mount_spec.variables {
            self.bind("--setenv", name, value);
        }
    }

    fn workspace(&mut self, launch_spec: &LaunchSpec) {
        let path = launch_spec.workspace.path();
        self.bind("--bind", path, "/workspace");
        for inner in launch_spec.workspace.read_only() {
            let to = Path::new("/workspace").join(inner);
            self.bind("--ro-bind", path.join(inner), to);
        }
    }
}

/// What bubblewrap writes to `--info-fd`.
#[derive(Deserialize)]
struct Info {
    #[serde(rename = "child-pid")]
    child_pid: i32,
}

fn first_process(info: &mut io::PipeReader) -> io::Result<OwnedFd> {
    let mut text = Vec::new();
    info.take(4096).read_to_end(&mut text)?;
    let started: Info = serde_json::from_slice(&text)?;
    let pid = Pid::from_raw(started.child_pid).ok_or_else(|| io::Error::other("no process"))?;
    Ok(rustix::process::pidfd_open(pid, PidfdFlags::empty())?)
}

fn find_program() -> Result<PathBuf, InterpreterError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("bwrap"))
        .find(|path| path.is_file());
    found.ok_or_else(|| {
        let text = "bubblewrap is missing. Install it with: apt-get install bubblewrap";
        InterpreterError::Unavailable(text.to_owned())
    })
}

/// Major and minor version: `bubblewrap 0.8.0`.
fn version(program: &PathBuf) -> Result<(u32, u32), InterpreterError> {
    let output = Command::new(program).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let text = text.map_err(|error| {
        InterpreterError::Unavailable(format!("{}: {error}", program.display()))
    })?;
    let number = text.split_whitespace().last().unwrap_or_default();
    let mut parts = number.split('.').map(|part| part.parse().unwrap_or(0));
    Ok((parts.next().unwrap_or(0), parts.next().unwrap_or(0)))
}
