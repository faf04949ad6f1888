//! No sandbox: cells run as ordinary programs of this user. For debugging only.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use async_trait::async_trait;
use rustix::process::{Pid, PidfdFlags};

use super::InterpreterError;
use super::child::spawn;
use super::engine::{Engine, LaunchSpec};
use super::environment::Environment;
use super::mount_spec::MountSpec;
use super::sandbox::{ChildGuard, HostIo, InitProcess, Sandbox};
use super::worker::Worker;

const WARNING: &str = "tier `unsandboxed`: cells are not isolated; they can read, change and reach whatever this user can";

/// Starts the runner without isolation.
pub(super) struct Unsandboxed {
    environment: Environment,
    worker: Worker,
}

impl Unsandboxed {
    pub(super) fn new(environment: Environment, worker: Worker) -> Self {
        Self {
            environment,
            worker,
        }
    }
}

#[async_trait]
impl Engine for Unsandboxed {
    async fn launch(&self, launch_spec: LaunchSpec) -> Result<Sandbox, InterpreterError> {
        tracing::warn!("{WARNING}");
        let environment = self.environment.clone();
        let launch = move || start(&environment, launch_spec);
        let failed = |source| InterpreterError::Start(format!("the runner: {source}"));
        self.worker.run(launch).await?.map_err(failed)
    }

    fn warnings(&self) -> Vec<&'static str> {
        vec![WARNING]
    }
}

fn start(environment: &Environment, launch_spec: LaunchSpec) -> io::Result<Sandbox> {
    let (host_io, inside) = HostIo::make()?;
    let [control, interrupt] = inside.each_ref().map(AsRawFd::as_raw_fd);
    let code = format!(
        "import sys; sys.path.insert(0, {:?}); \
         from pybench_runner import runner; runner.main({control}, {interrupt})",
        environment.runner.join("lib"),
    );
    let mut command = Command::new(environment.root.join("bin/python"));
    command
        .args(["-P", "-u", "-c", &code])
        .env_clear()
        .envs(variables(environment, &launch_spec))
        .current_dir(launch_spec.workspace.path());
    let child = spawn(command, &host_io, &launch_spec, inside)?;
    let pid =
        Pid::from_raw(child.id().cast_signed()).ok_or_else(|| io::Error::other("no process"))?;
    let init: OwnedFd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    Ok(Sandbox {
        host_io,
        init: InitProcess(init),
        group: launch_spec.group,
        child_guard: ChildGuard::Unsandboxed(child),
        proxy_socket: None,
    })
}

/// The environment variables of the other tiers, with host paths.
fn variables(environment: &Environment, launch_spec: &LaunchSpec) -> Vec<(&'static str, String)> {
    let mount_spec = MountSpec::for_session(environment, &launch_spec.spec);
    let (root, runner) = (environment.root.display(), environment.runner.display());
    let here = |value: &str| {
        value
            .replace("/tmp/.ipython", "/workspace/.ipython") // each session is another user
            .replace("/tmp/matplotlib", &format!("{root}/caches/matplotlib"))
            .replace("/opt/env", &root.to_string())
            .replace("/opt/pybench", &runner.to_string())
            .replace(
                "/workspace",
                &launch_spec.workspace.path().to_string_lossy(),
            )
    };
    let variables = mount_spec.variables.into_iter();
    variables.map(|(name, value)| (name, here(value))).collect()
}
