//! No sandbox: cells run as any program of this machine. For debugging; asked for by name alone.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use async_trait::async_trait;
use rustix::process::{Pid, PidfdFlags};

use super::InterpreterError;
use super::child::{enter, fix_addresses};
use super::engine::{Engine, Order};
use super::environment::Environment;
use super::sandbox::{Ends, First, Keeper, Sandbox};
use super::view::View;
use super::worker::Worker;

const WARNING: &str =
    "tier `none`: cells are not isolated; they can read, change and reach whatever this user can";

/// Starts the runner as it is.
pub(super) struct Bare {
    environment: Environment,
    /// Starts processes.
    worker: Worker,
}

impl Bare {
    pub(super) fn new(environment: Environment, worker: Worker) -> Self {
        Self {
            environment,
            worker,
        }
    }
}

#[async_trait]
impl Engine for Bare {
    async fn launch(&self, order: Order) -> Result<Sandbox, InterpreterError> {
        tracing::warn!("{WARNING}");
        let environment = self.environment.clone();
        let launch = move || start(&environment, order);
        let failed = |source| InterpreterError::Start(format!("the runner: {source}"));
        self.worker.run(launch).await?.map_err(failed)
    }

    fn warnings(&self) -> Vec<&'static str> {
        vec![WARNING]
    }
}

fn start(environment: &Environment, order: Order) -> io::Result<Sandbox> {
    let (ends, inside) = Ends::make()?;
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
        .envs(variables(environment, &order))
        .current_dir(order.workspace.path())
        .stdin(Stdio::null())
        .stdout(ends.streams[0].try_clone()?)
        .stderr(ends.streams[1].try_clone()?);
    let (joins, user) = (order.group.joins()?, order.user);
    // SAFETY: between fork and exec only system calls are made, on values prepared before; nothing is
    // allocated or locked.
    unsafe {
        command.pre_exec(move || {
            fix_addresses();
            enter(&joins, &inside, user)
        })
    };
    let child = command.spawn()?;
    let pid =
        Pid::from_raw(child.id().cast_signed()).ok_or_else(|| io::Error::other("no process"))?;
    let init: OwnedFd = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
    Ok(Sandbox {
        ends,
        init: First(init),
        group: order.group,
        keeper: Keeper::Bare(child),
        door: None,
    })
}

/// The variables of other tiers, with this machine's paths.
fn variables(environment: &Environment, order: &Order) -> Vec<(&'static str, String)> {
    let view = View::of(environment, &order.spec);
    let (root, runner) = (environment.root.display(), environment.runner.display());
    let here = |value: &str| {
        value
            .replace("/tmp/.ipython", "/workspace/.ipython") // sessions are users of their own
            .replace("/tmp/matplotlib", &format!("{root}/caches/matplotlib"))
            .replace("/opt/env", &root.to_string())
            .replace("/opt/pybench", &runner.to_string())
            .replace("/workspace", &order.workspace.path().to_string_lossy())
    };
    let variables = view.variables.into_iter();
    variables.map(|(name, value)| (name, here(value))).collect()
}
