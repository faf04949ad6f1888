//! Settings of the container tiers. Isolation itself (no network, no capabilities, read-only system, limits)
//! is not configurable.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use pybench_interpreter::InterpreterError;

/// Environment variable with the path of the settings file.
const VARIABLE: &str = "PYBENCH_CONTAINERS";

/// Settings of the container tiers: the TOML file that `PYBENCH_CONTAINERS` names, with one table per engine
/// (docs/containers.md).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContainerSettings {
    pub docker: EngineSettings,
    pub podman: EngineSettings,
    pub kubernetes: ClusterSettings,
}

/// Settings of Docker or Podman.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSettings {
    /// Path of the client program. Default: found in `PATH`.
    pub program: Option<PathBuf>,
    /// A local image with the Python environment at `/opt/env`; it is not pulled. Default: sessions see this
    /// machine's system and environment, read-only.
    pub image: Option<String>,
    /// OCI runtime (`runsc`, `kata`, `crun`). Default: the engine's.
    pub runtime: Option<String>,
    /// Seccomp profile. Default: the engine's. Our own filter is always installed in addition.
    pub seccomp: Option<PathBuf>,
    /// Maximum number of CPUs of a session, whatever its limits say. Default: its limits.
    pub cpus: Option<f64>,
}

/// Settings of the Kubernetes cluster, which is accessed through `kubectl`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterSettings {
    /// Path of `kubectl`. Default: found in `PATH`.
    pub program: Option<PathBuf>,
    /// Context of the kubeconfig. Default: its current context.
    pub context: Option<String>,
    /// Namespace of the pods. Use a dedicated namespace with the pod security level `restricted`.
    pub namespace: String,
    /// Image with the Python environment at `/opt/env`. Required.
    pub image: Option<String>,
    /// Name of the secret for pulling the image.
    pub image_pull_secret: Option<String>,
    /// RuntimeClass of the pods (`gvisor`, `kata`).
    pub runtime_class: Option<String>,
    /// Whether pods get a user namespace (`hostUsers: false`); requires Kubernetes 1.33.
    pub user_namespace: bool,
    /// Each session runs as one of the 65,536 users from this number on, so that limits per user apply to
    /// one session.
    pub first_user: u32,
    /// CPUs of a session, in Kubernetes notation (`500m`, `2`).
    pub cpu: String,
    /// Labels of the nodes on which sessions may run.
    pub node_selector: BTreeMap<String, String>,
    /// Time limit for starting a pod, including pulling its image, seconds.
    pub start_seconds: u64,
    /// Time limit after which the cluster ends a pod in any case, seconds.
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
    /// Reads the settings of this machine; the defaults if `PYBENCH_CONTAINERS` is not set.
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
            // The values become command arguments and must not look like options.
            let plain = |text: &String| {
                !text.is_empty() && !text.starts_with('-') && !text.contains(char::is_whitespace)
            };
            if value.as_ref().is_some_and(|text| !plain(text)) {
                return Err(format!(
                    "{name}: expected a name without spaces that does not start with `-`"
                ));
            }
        }
        if cluster.first_user < 1000 || cluster.first_user > i32::MAX.unsigned_abs() - 65_536 {
            return Err(
                "kubernetes.first_user: expected a number from 1000 to 2147418111".to_owned(),
            );
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_invalid_settings_are_refused() {
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
    fn errors_name_the_file_and_line() {
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
