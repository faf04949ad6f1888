//! What an administrator may choose of containers. What keeps a session in (no network, no capability,
//! read-only system, limits) is no choice.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::interpreter::InterpreterError;

/// Names the file that holds the settings.
const VARIABLE: &str = "PYBENCH_CONTAINERS";

/// How engines make containers: the TOML file that `PYBENCH_CONTAINERS` names, a table per engine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContainerSettings {
    /// Docker.
    pub docker: EngineSettings,
    /// Podman.
    pub podman: EngineSettings,
    /// Kubernetes.
    pub kubernetes: ClusterSettings,
}

/// An engine on this machine.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSettings {
    /// Its program; otherwise the one in `PATH`.
    pub program: Option<PathBuf>,
    /// An image with the environment at `/opt/env`, which must be there already: nothing is pulled.
    /// Otherwise sessions see this machine's own system and environment, read-only.
    pub image: Option<String>,
    /// Another OCI runtime than the engine's own (`runsc`, `kata`, `crun`).
    pub runtime: Option<String>,
    /// A seccomp profile in place of the engine's own. Ours is installed within it, always.
    pub seccomp: Option<PathBuf>,
    /// Processors, at most.
    pub cpus: Option<f64>,
}

/// A cluster, reached as `kubectl` does.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterSettings {
    /// `kubectl`; otherwise the one in `PATH`.
    pub program: Option<PathBuf>,
    /// A context of the kubeconfig; otherwise its current one.
    pub context: Option<String>,
    /// Where pods are made. Give sessions one of their own, at the level `restricted` of pod security.
    pub namespace: String,
    /// An image with the environment at `/opt/env`. Needed.
    pub image: Option<String>,
    /// Secret for pulling it.
    pub image_pull_secret: Option<String>,
    /// RuntimeClass of the pods (`gvisor`, `kata`).
    pub runtime_class: Option<String>,
    /// Whether pods get a user namespace (`hostUsers: false`), which clusters from 1.33 on have.
    pub user_namespace: bool,
    /// Sessions run as one of the 65,536 users from here on, so that a user's processes are a session's.
    pub first_user: u32,
    /// Processors of a session, in the cluster's notation.
    pub cpu: String,
    /// Nodes on which sessions may run.
    pub node_selector: BTreeMap<String, String>,
    /// Seconds that a pod may take to run, with the pulling of its image.
    pub start_seconds: u64,
    /// Seconds after which the cluster ends a pod, whatever became of us.
    pub most_seconds: u64,
}

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            program: None,
            context: None,
            namespace: "pybench".to_owned(),
            image: None,
            image_pull_secret: None,
            runtime_class: None,
            user_namespace: false,
            first_user: 2_000_000_000,
            cpu: "1".to_owned(),
            node_selector: BTreeMap::new(),
            start_seconds: 300,
            most_seconds: 86_400,
        }
    }
}

impl ContainerSettings {
    /// Those of this machine; the defaults where `PYBENCH_CONTAINERS` is not set.
    ///
    /// # Errors
    /// [`InterpreterError::Unavailable`], naming file and line, when the file cannot be used.
    pub fn load() -> Result<Self, InterpreterError> {
        match std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
            Some(path) => Self::read(Path::new(&path)),
            None => Ok(Self::default()),
        }
    }

    fn read(path: &Path) -> Result<Self, InterpreterError> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        let parsed = text.and_then(|text| Self::parse(&text));
        parsed.map_err(|error| {
            InterpreterError::Unavailable(format!("{VARIABLE}={}: {error}", path.display()))
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let settings: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let cluster = &settings.kubernetes;
        let words = [
            ("docker.image", &settings.docker.image),
            ("docker.runtime", &settings.docker.runtime),
            ("podman.image", &settings.podman.image),
            ("podman.runtime", &settings.podman.runtime),
            ("kubernetes.image", &cluster.image),
            ("kubernetes.context", &cluster.context),
            ("kubernetes.namespace", &Some(cluster.namespace.clone())),
        ];
        for (name, value) in words {
            // They become arguments of a command, and none may pass for an option.
            let plain = |text: &String| {
                !text.is_empty() && !text.starts_with('-') && !text.contains(char::is_whitespace)
            };
            if value.as_ref().is_some_and(|text| !plain(text)) {
                return Err(format!("{name} is not a name"));
            }
        }
        if cluster.first_user < 1000 || cluster.first_user > i32::MAX.unsigned_abs() - 65_536 {
            return Err("kubernetes.first_user must be from 1000 to 2147418111".to_owned());
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_nothing_else() {
        let text =
            "[docker]\nimage = 'env:1'\nruntime = 'runsc'\n[kubernetes]\nruntime_class = 'gvisor'";
        let settings = ContainerSettings::parse(text).unwrap();
        assert_eq!(settings.docker.runtime.as_deref(), Some("runsc"));
        assert_eq!(settings.kubernetes.namespace, "pybench");
        assert_eq!(settings.podman, EngineSettings::default());
        for wrong in [
            "[docker]\nprivileged = true",
            "[docker]\nimage = '--privileged'",
            "[podman]\nruntime = 'a b'",
            "[kubernetes]\nfirst_user = 0",
            "[kubernetes]\nnamespace = ''",
        ] {
            assert!(ContainerSettings::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_broken_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("containers.toml");
        std::fs::write(&path, "[docker]\nimage = 1\n").unwrap();
        let error = ContainerSettings::read(&path).unwrap_err().to_string();
        assert!(
            error.contains("containers.toml") && error.contains("line 2"),
            "{error}"
        );
    }
}
