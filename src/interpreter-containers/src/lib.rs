//! The container tiers gVisor, Docker, Podman and Kubernetes, and the choice among all tiers.
//!
//! [`gvisor`], [`docker`](fn@docker), [`podman`] and [`kubernetes`](fn@kubernetes) run sessions in containers, with
//! the same runner and protocol as the other tiers. `container_spec` describes a session's container; each
//! engine translates it. [`interpreter`] starts the tier that a recipe names; [`doctor`] reports what this
//! machine supports.

mod container_spec;
mod docker;
pub mod doctor;
mod file_transfer;
mod gvisor;
mod kubernetes;
mod manifest;
mod program;
mod relay;
mod settings;

use std::sync::Arc;

use pybench_interpreter::workspace::Storage;
use pybench_interpreter::{
    Interpreter, InterpreterChoice, InterpreterError, LocalInterpreter, PacedInterpreter, Tier,
};

pub use settings::{ClusterSettings, ContainerSettings, EngineSettings};

/// The interpreter of the tier that a recipe names. If the machine refuses the tier `jail`, bubblewrap is used
/// instead, with a warning.
///
/// # Errors
/// [`InterpreterError::Unavailable`] if the tier cannot run here; the text says what to do.
pub fn interpreter(choice: &InterpreterChoice) -> Result<Arc<dyn Interpreter>, InterpreterError> {
    match (choice.tier, of_tier(choice.tier)) {
        (Tier::Jail, Err(error)) => bubblewrap_instead(&error),
        (_, made) => made,
    }
}

/// Like [`interpreter`], for many sessions at the same time: those of this machine work as its cores allow.
///
/// # Errors
/// As [`interpreter`].
pub fn paced(choice: &InterpreterChoice) -> Result<Arc<dyn Interpreter>, InterpreterError> {
    let sessions = interpreter(choice)?;
    Ok(match choice.tier {
        // Cells run on the cores of the cluster.
        Tier::Kubernetes => sessions,
        _ => Arc::new(PacedInterpreter::new(sessions)),
    })
}

/// An interpreter of the given tier, without fallback.
///
/// # Errors
/// [`InterpreterError::Unavailable`] if the tier cannot run here; the text says what to do.
pub fn of_tier(tier: Tier) -> Result<Arc<dyn Interpreter>, InterpreterError> {
    Ok(match tier {
        Tier::Unsandboxed => Arc::new(LocalInterpreter::unsandboxed()?),
        Tier::Jail => Arc::new(LocalInterpreter::jail()?),
        Tier::Bwrap => Arc::new(LocalInterpreter::bwrap()?),
        Tier::Gvisor => Arc::new(gvisor()?),
        Tier::Docker => Arc::new(docker(&ContainerSettings::load()?.docker)?),
        Tier::Podman => Arc::new(podman(&ContainerSettings::load()?.podman)?),
        Tier::Kubernetes => {
            let settings = ContainerSettings::load()?.kubernetes;
            Arc::new(kubernetes(&settings)?)
        }
    })
}

/// Falls back from the tier `jail` to bubblewrap; if that fails too, the error has both reasons.
fn bubblewrap_instead(error: &InterpreterError) -> Result<Arc<dyn Interpreter>, InterpreterError> {
    match of_tier(Tier::Bwrap) {
        Ok(interpreter) => {
            tracing::warn!("{error}; using bubblewrap instead, which starts sessions more slowly");
            Ok(interpreter)
        }
        Err(second) => Err(InterpreterError::Unavailable(format!("{error}; {second}"))),
    }
}

/// The `gvisor` tier: each session has its own kernel in user space.
///
/// # Errors
/// [`InterpreterError::Unavailable`] when `runsc` or the Python environment is missing; its text says
/// what to do.
pub fn gvisor() -> Result<LocalInterpreter, InterpreterError> {
    LocalInterpreter::with(|host| {
        let engine = gvisor::Gvisor::find(host.environment.clone(), host.worker.clone())?;
        Ok(Box::new(engine))
    })
}

/// The `docker` tier: each session is a container.
///
/// # Errors
/// [`InterpreterError::Unavailable`] when docker, its daemon, an image or the Python environment is
/// missing; its text says what to do.
pub fn docker(settings: &EngineSettings) -> Result<LocalInterpreter, InterpreterError> {
    LocalInterpreter::on(Storage::on_disk, |host| {
        let engine = docker::Docker::find(docker::Kind::Docker, settings, host)?;
        Ok(Box::new(engine))
    })
}

/// The `podman` tier: each session is a container.
///
/// # Errors
/// [`InterpreterError::Unavailable`] when podman, an image or the Python environment is missing; its
/// text says what to do.
pub fn podman(settings: &EngineSettings) -> Result<LocalInterpreter, InterpreterError> {
    LocalInterpreter::with(|host| {
        let engine = docker::Docker::find(docker::Kind::Podman, settings, host)?;
        Ok(Box::new(engine))
    })
}

/// The `kubernetes` tier: each session is a pod.
///
/// # Errors
/// [`InterpreterError::Unavailable`] when kubectl, the cluster, a permission, the name of an image or the
/// Python environment is missing; its text says what to do.
pub fn kubernetes(settings: &ClusterSettings) -> Result<LocalInterpreter, InterpreterError> {
    LocalInterpreter::on(Storage::on_disk, |host| {
        Ok(Box::new(kubernetes::Kubernetes::find(settings, host)?))
    })
}
