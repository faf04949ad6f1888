//! The `kubernetes` tier: one pod per session, accessed through `kubectl`, which handles authentication.
//! The pod contains the session's workspace and lives as long as it; each process of the session is a
//! `kubectl exec` (`relay.rs`). Input files are sent before the session's container starts, and outputs are
//! collected through another `exec` (`file_transfer.rs`).

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};

use super::container_spec::command;
use super::file_transfer;
use super::manifest::{self, Phase, PodParams, RECEIVER, SESSION};
use super::program::Program;
use super::relay::{StartedContainer, client_pidfd};
use super::settings::ClusterSettings;
use pybench_interpreter::child::enter;
use pybench_interpreter::engine::HostEnv;
use pybench_interpreter::engine::{EnforcedLimits, Engine, LaunchSpec};
use pybench_interpreter::environment::Environment;
use pybench_interpreter::mount_spec::MountSpec;
use pybench_interpreter::sandbox::{HostIo, Sandbox};
use pybench_interpreter::seccomp;
use pybench_interpreter::worker::Worker;
use pybench_interpreter::workspace::{Workspace, WorkspaceResource};
use pybench_interpreter::{Collected, InterpreterError, Limits};

/// Time limit of one `kubectl` command.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit for collecting files.
const COLLECT_TIMEOUT: Duration = Duration::from_secs(120);
/// How often the state of a starting pod is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// The engine of the `kubernetes` tier.
#[derive(Clone)]
pub(crate) struct Kubernetes {
    kubectl: Kubectl,
    environment: Environment,
    settings: ClusterSettings,
    /// Whether the network policy that blocks all traffic was applied.
    has_network_policy: bool,
    /// Starts long-running processes.
    worker: Worker,
}

/// `kubectl` with common options.
#[derive(Clone, Debug)]
struct Kubectl {
    program: Program,
    common: Vec<String>,
}

impl Kubectl {
    fn new(settings: &ClusterSettings) -> Result<Self, InterpreterError> {
        let remedy = "Install kubectl and a kubeconfig that names the cluster";
        let program = Program::find("kubectl", settings.program.as_deref(), remedy)?;
        let mut common = vec![format!("--namespace={}", settings.namespace)];
        common.extend(
            settings
                .context
                .iter()
                .map(|context| format!("--context={context}")),
        );
        Ok(Self { program, common })
    }

    fn arguments(&self, words: &[&str]) -> Vec<String> {
        let words = words.iter().map(|&word| word.to_owned());
        self.common.iter().cloned().chain(words).collect()
    }

    fn ask(&self, words: &[&str], input: &[u8]) -> Result<String, String> {
        self.program.ask(&self.arguments(words), input, TIMEOUT)
    }

    /// The same without blocking the async runtime.
    async fn ask_async(&self, words: &[&str], input: Vec<u8>) -> Result<String, String> {
        let (program, arguments) = (self.program.clone(), self.arguments(words));
        let ask = move || program.ask(&arguments, &input, TIMEOUT);
        tokio::task::spawn_blocking(ask)
            .await
            .unwrap_or_else(|error| Err(error.to_string()))
    }

    /// A command that runs a program in a container, with piped stdin and stdout.
    fn exec(&self, pod: &str, container: &str, inside: &[String]) -> std::process::Command {
        let mut command = self.program.command();
        command
            .args(self.arguments(&[
                "exec",
                "--stdin",
                "--quiet",
                pod,
                "--container",
                container,
                "--",
            ]))
            .args(inside)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command
    }
}

/// A session's pod; dropping this deletes the pod.
#[derive(Debug)]
struct Pod {
    kubectl: Kubectl,
    name: String,
}

impl WorkspaceResource for Pod {}

impl Drop for Pod {
    fn drop(&mut self) {
        let words = [
            "delete",
            "pod",
            &self.name,
            "--ignore-not-found",
            "--now",
            "--timeout=20s",
        ];
        if let Err(error) = self.kubectl.ask(&words, b"") {
            tracing::warn!("the pod {} could not be deleted: {error}", self.name);
        }
    }
}

impl Kubernetes {
    /// Finds `kubectl`, checks the permissions in the cluster, and applies the network policy.
    pub(crate) fn find(
        settings: &ClusterSettings,
        host: &HostEnv,
    ) -> Result<Self, InterpreterError> {
        if settings.image.is_none() {
            let text = "kubernetes needs an image with the Python environment at /opt/env: set `image` in the table \
                        [kubernetes] of the file that PYBENCH_CONTAINERS names (docs/containers.md)";
            return Err(InterpreterError::Unavailable(text.to_owned()));
        }
        let mut this = Self {
            kubectl: Kubectl::new(settings)?,
            environment: host.environment.clone(),
            settings: settings.clone(),
            has_network_policy: false,
            worker: host.worker.clone(),
        };
        let question = this.clone();
        let answer = host.worker.run_blocking(move || question.prepare());
        let stopped = || Err("the launcher thread has stopped".to_owned());
        this.has_network_policy = answer.unwrap_or_else(stopped).map_err(|error| {
            InterpreterError::Unavailable(format!("kubernetes: {}", explain_error(&error)))
        })?;
        Ok(this)
    }

    /// Checks permissions and deletes pods that dead processes have left. Returns whether the network
    /// policy was applied.
    fn prepare(&self) -> Result<bool, String> {
        for what in ["create pods", "get pods", "delete pods", "create pods/exec"] {
            let (verb, kind) = what.split_once(' ').unwrap_or((what, ""));
            let answer = self.kubectl.ask(&["auth", "can-i", verb, kind], b"");
            // If the answer is `no`, kubectl fails with an empty stderr.
            match answer {
                Ok(answer) if answer.trim() == "yes" => {}
                Err(complaint) if !complaint.is_empty() => return Err(complaint),
                _ => {
                    return Err(format!(
                        "this account may not {what} in the namespace {}. Bind it to a Role that allows \
                         it (docs/containers.md)",
                        self.settings.namespace
                    ));
                }
            }
        }
        self.delete_orphans();
        let policy = manifest::no_network(&self.settings).to_string();
        Ok(self
            .kubectl
            .ask(&["apply", "--filename=-"], policy.as_bytes())
            .is_ok())
    }

    fn delete_orphans(&self) {
        let mine = format!("{}-", host());
        let list = [
            "get",
            "pods",
            "--selector=app.kubernetes.io/managed-by=pybench",
            "--output=jsonpath={range .items[*]}{.metadata.name} {.metadata.labels.pybench/owner}{\"\\n\"}{end}",
        ];
        for line in self.kubectl.ask(&list, b"").unwrap_or_default().lines() {
            let owner = line
                .split_once(' ')
                .and_then(|(name, owner)| Some((name, owner.strip_prefix(&mine)?)));
            if let Some((name, pid)) = owner
                && !std::path::Path::new("/proc").join(pid).exists()
            {
                let _ = self.kubectl.ask(
                    &[
                        "delete",
                        "pod",
                        name,
                        "--ignore-not-found",
                        "--now",
                        "--wait=false",
                    ],
                    b"",
                );
            }
        }
    }

    /// Creates a session's pod and sends its input files.
    async fn create(&self, launch_spec: &LaunchSpec) -> Result<Pod, String> {
        let name = format!(
            "pybench-{}-{:016x}",
            std::process::id(),
            rand::random::<u64>()
        );
        let mount_spec = MountSpec::new(&self.environment, None, false);
        let params = PodParams {
            name: &name,
            owner: &format!("{}-{}", host(), std::process::id()),
            user: self.settings.first_user + u32::from(rand::random::<u16>()),
            limits: &launch_spec.spec.limits,
            workspace: launch_spec.workspace.capacity(),
            temporary: launch_spec.tmpfs_bytes(),
            read_only: launch_spec.workspace.read_only(),
            variables: &mount_spec.variables,
        };
        let manifest = manifest::pod(&params, &self.settings).to_string();
        let pod = Pod {
            kubectl: self.kubectl.clone(),
            name,
        };
        self.kubectl
            .ask_async(&["create", "--filename=-"], manifest.into_bytes())
            .await?;
        self.wait_for(&pod.name, &Phase::Receiving).await?;
        let sent = self.send_files(&pod.name, &launch_spec.workspace).await;
        sent.map_err(|error| format!("sending files to the pod: {error}"))?;
        self.wait_for(&pod.name, &Phase::Running).await?;
        Ok(pod)
    }

    /// Waits until a pod has reached a phase.
    async fn wait_for(&self, pod: &str, wanted: &Phase) -> Result<(), String> {
        let until = Instant::now() + Duration::from_secs(self.settings.start_seconds);
        loop {
            let text = self
                .kubectl
                .ask_async(&["get", "pod", pod, "--output=json"], Vec::new())
                .await?;
            let seen: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            let waits = match manifest::phase(&seen) {
                phase if phase == *wanted => return Ok(()),
                Phase::Failed(why) => return Err(format!("the pod cannot start: {why}")),
                Phase::Pending(why) => why,
                Phase::Receiving | Phase::Running => String::new(),
            };
            if Instant::now() > until {
                let seconds = self.settings.start_seconds;
                return Err(format!("the pod did not start within {seconds} s: {waits}"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Sends the runner and the input files.
    async fn send_files(&self, pod: &str, workspace: &Workspace) -> io::Result<()> {
        let program =
            ["/opt/env/bin/python", "-I", "-c", file_transfer::RECEIVE].map(str::to_owned);
        let mut child = Command::from(self.kubectl.exec(pod, RECEIVER, &program))
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut input = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let send = async {
            file_transfer::send(&mut input, &self.environment.runner, "pybench").await?;
            for inner in workspace.read_only() {
                file_transfer::send(
                    &mut input,
                    &workspace.path().join(inner),
                    &format!("workspace/{inner}"),
                )
                .await?;
            }
            file_transfer::finish(&mut input).await
        };
        let limit = Duration::from_secs(self.settings.start_seconds);
        let sent = tokio::time::timeout(limit, send).await?;
        drop(input);
        let output = tokio::time::timeout(TIMEOUT, child.wait_with_output()).await??;
        match String::from_utf8_lossy(&output.stdout).trim() {
            "ok" => sent,
            _ => Err(io::Error::other(
                String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            )),
        }
    }

    /// Starts a helper program in the session's pod and returns its stdout. Dropping the child kills it.
    fn exec_helper(
        &self,
        workspace: &Workspace,
        program: &[&str],
    ) -> io::Result<(Child, ChildStdout)> {
        let pod = workspace.attached::<Pod>().ok_or(io::ErrorKind::NotFound)?;
        let words = ["/opt/env/bin/python", "-I", "-c"];
        let program = words.iter().chain(program).map(|&word| word.to_owned());
        let program: Vec<String> = program.collect();
        let mut child = Command::from(self.kubectl.exec(&pod.name, SESSION, &program))
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        Ok((child, output))
    }

    /// Starts the runner in a pod. Must run on a launcher thread.
    fn try_launch(&self, pod: &str, launch_spec: LaunchSpec) -> io::Result<StartedContainer> {
        let (host_io, inside) = HostIo::make()?;
        // Network policies are not enforced in every cluster, so the filter refuses IP sockets.
        let begin = command("attached", Some(&seccomp::program_offline()), false);
        let mut exec = self.kubectl.exec(pod, SESSION, &begin);
        // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
        unsafe { exec.pre_exec(|| enter(&[], &[], None)) };
        let monitor = exec.stderr(host_io.streams[1].try_clone()?).spawn()?;
        Ok(StartedContainer {
            main_process: client_pidfd(&monitor)?,
            // When `kubectl` ends, the relay kills the session's processes; the pod's first process kills
            // the rest.
            remove: Box::new(|| {}),
            launch_spec,
            host_io,
            inside,
            monitor,
            proxy_socket: None,
        })
    }
}

#[async_trait]
impl Engine for Kubernetes {
    async fn launch(&self, launch_spec: LaunchSpec) -> Result<Sandbox, InterpreterError> {
        let failed =
            |why: String| InterpreterError::Start(format!("kubernetes: {}", explain_error(&why)));
        if launch_spec.workspace.attached::<Pod>().is_none() {
            let pod = self.create(&launch_spec).await.map_err(failed)?;
            launch_spec.workspace.attach(pod);
        }
        let pod = launch_spec
            .workspace
            .attached::<Pod>()
            .map(|pod| pod.name.clone())
            .unwrap_or_default();
        let this = self.clone();
        let started = self
            .worker
            .run(move || this.try_launch(&pod, launch_spec))
            .await?;
        started
            .and_then(StartedContainer::connect)
            .map_err(|error| failed(error.to_string()))
    }

    fn enforced_limits(&self) -> Option<EnforcedLimits> {
        Some(EnforcedLimits {
            memory: true,
            processes: false,
            cpus: true,
        })
    }

    fn is_remote(&self) -> bool {
        true
    }

    async fn collect(
        &self,
        workspace: &Workspace,
        limits: &Limits,
    ) -> Result<Collected, InterpreterError> {
        let failed = |source| InterpreterError::Io {
            context: "collecting ./output from the pod".to_owned(),
            source,
        };
        let collect = async {
            let (files, bytes) = (limits.output_files, limits.output_mib << 20);
            let program = [file_transfer::SEND, &files.to_string(), &bytes.to_string()];
            let (_child, output) = self.exec_helper(workspace, &program)?;
            file_transfer::receive(&mut tokio::io::BufReader::new(output), limits).await
        };
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let collected = tokio::time::timeout(COLLECT_TIMEOUT, collect).await;
        collected.map_err(late).flatten().map_err(failed)
    }

    async fn digest(&self, workspace: &Workspace) -> Result<String, InterpreterError> {
        let failed = |source| InterpreterError::Io {
            context: "comparing workspaces in pods".to_owned(),
            source,
        };
        let ask = async {
            let (_child, output) = self.exec_helper(workspace, &[file_transfer::DIGEST])?;
            let mut said = String::new();
            output.take(100).read_to_string(&mut said).await?;
            match said.trim() {
                digest if digest.len() == 64 => Ok(digest.to_owned()),
                _ => Err(io::Error::other(
                    "the workspace cannot be read, or is too large",
                )),
            }
        };
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let ask_async = tokio::time::timeout(COLLECT_TIMEOUT, ask).await;
        ask_async.map_err(late).flatten().map_err(failed)
    }

    fn warnings(&self) -> Vec<&'static str> {
        let unguarded = "the cluster's network policy could not be applied: only the system call filter keeps \
                         sessions from the network";
        match self.has_network_policy {
            true => Vec::new(),
            false => vec![unguarded],
        }
    }
}

/// A hash of the host name, valid in a label.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    blake3::hash(name.as_bytes()).to_hex()[..12].to_owned()
}

/// Adds a remedy to a known error message of `kubectl`.
fn explain_error(complaint: &str) -> String {
    let lower = complaint.to_lowercase();
    let says = |texts: &[&str]| texts.iter().any(|text| lower.contains(text));
    let remedy = if says(&[
        "connection refused",
        "unable to connect",
        "no such host",
        "i/o timeout",
    ]) {
        "The cluster does not answer: set KUBECONFIG, or `context` in the settings"
    } else if says(&["podsecurity", "forbidden"]) {
        "The cluster refuses it: see docs/containers.md for the Role and the namespace that sessions need"
    } else if says(&["namespaces", "not found"]) && lower.contains("namespaces") {
        "Create the namespace with: kubectl create namespace NAME, or name another in the settings"
    } else if says(&["runtimeclass"]) {
        "Install that RuntimeClass, or name another as `runtime_class`"
    } else if says(&["errimage", "imagepull", "invalidimagename"]) {
        "Push the image to a registry that the nodes can pull from, and check `image` and `image_pull_secret`"
    } else {
        return complaint.to_owned();
    };
    format!("{complaint}. {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exec_commands_have_the_expected_arguments() {
        let settings = ClusterSettings {
            program: Some("/bin/true".into()),
            context: Some("lab".to_owned()),
            ..ClusterSettings::default()
        };
        let kubectl = Kubectl::new(&settings).unwrap();
        let exec = kubectl.exec("pybench-1-x", SESSION, &["python".to_owned()]);
        insta::assert_snapshot!(
            format!("{exec:?}"),
            @r#"cd "/" && "/bin/true" "--namespace=pybench" "--context=lab" "exec" "--stdin" "--quiet" "pybench-1-x" "--container" "session" "--" "python""#
        );
    }

    #[test]
    fn known_errors_get_a_remedy() {
        for (complaint, remedy) in [
            (
                "The connection to the server localhost:8080 was refused: connection refused",
                "KUBECONFIG",
            ),
            ("pods \"x\" is forbidden: violates PodSecurity", "Role"),
            ("namespaces \"pybench\" not found", "create namespace"),
            (
                "pod rejected: RuntimeClass \"kata\" not found",
                "runtime_class",
            ),
            ("ErrImagePull: no such image", "image_pull_secret"),
        ] {
            assert!(
                explain_error(complaint).contains(remedy),
                "{}",
                explain_error(complaint)
            );
        }
        assert_eq!(explain_error("something else"), "something else");
    }
}
