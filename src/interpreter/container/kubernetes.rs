//! A pod for each session, made and reached by `kubectl`, which knows the ways to sign in to clusters.
//! The pod stays as long as the session's workspace, which is in it; a process of the session is an `exec`
//! in it (`relay.rs`). Files are sent before the session's container starts and collected through another
//! `exec` (`given.rs`).

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, ChildStdout, Command};

use super::describe::command;
use super::given;
use super::manifest::{self, Phase, RECEIVER, SESSION, Wish};
use super::program::Program;
use super::relay::{Started, first_of};
use super::settings::ClusterSettings;
use crate::interpreter::child::enter;
use crate::interpreter::engine::{Bounds, Engine, Order};
use crate::interpreter::environment::Environment;
use crate::interpreter::local::Ground;
use crate::interpreter::sandbox::{Ends, Sandbox};
use crate::interpreter::seccomp;
use crate::interpreter::view::View;
use crate::interpreter::worker::Worker;
use crate::interpreter::workspace::{Companion, Workspace};
use crate::interpreter::{Collected, InterpreterError, Limits};

/// How long the cluster may take to answer a question.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long collecting may take.
const COLLECT_PATIENCE: Duration = Duration::from_secs(120);
/// How often a pod that is to run is looked at.
const LOOK: Duration = Duration::from_millis(300);

/// A cluster.
#[derive(Clone)]
pub(in crate::interpreter) struct Kubernetes {
    kubectl: Kubectl,
    environment: Environment,
    settings: ClusterSettings,
    /// Whether the cluster has been told to let no packet through.
    guarded: bool,
    /// Starts processes that live longer than a question.
    worker: Worker,
}

/// `kubectl` with what all of its calls have in common.
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
        self.program.ask(&self.arguments(words), input, PATIENCE)
    }

    /// The same from where one may not block.
    async fn asked(&self, words: &[&str], input: Vec<u8>) -> Result<String, String> {
        let (program, arguments) = (self.program.clone(), self.arguments(words));
        let ask = move || program.ask(&arguments, &input, PATIENCE);
        tokio::task::spawn_blocking(ask)
            .await
            .unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Run something in a container, with its input and output.
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

/// A session's pod, which is deleted when this is dropped.
#[derive(Debug)]
struct Pod {
    kubectl: Kubectl,
    name: String,
}

impl Companion for Pod {}

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
            tracing::warn!("the pod {} may be left: {error}", self.name);
        }
    }
}

impl Kubernetes {
    /// Find `kubectl`, ask the cluster whether pods may be made, and tell it to let no packet through.
    pub(in crate::interpreter) fn find(
        settings: &ClusterSettings,
        ground: &Ground,
    ) -> Result<Self, InterpreterError> {
        if settings.image.is_none() {
            let text = "kubernetes needs an image with the environment at /opt/env: name it as \
                        `image` in the table [kubernetes] of the file that PYBENCH_CONTAINERS names";
            return Err(InterpreterError::Unavailable(text.to_owned()));
        }
        let mut this = Self {
            kubectl: Kubectl::new(settings)?,
            environment: ground.environment.clone(),
            settings: settings.clone(),
            guarded: false,
            worker: ground.worker.clone(),
        };
        let question = this.clone();
        let answer = ground.worker.run_blocking(move || question.prepare());
        let gone = || Err("the launcher has ended".to_owned());
        this.guarded = answer.unwrap_or_else(gone).map_err(|error| {
            InterpreterError::Unavailable(format!("kubernetes: {}", explained(&error)))
        })?;
        Ok(this)
    }

    /// See what is allowed, remove what processes that are gone have left. Whether the network policy
    /// stands.
    fn prepare(&self) -> Result<bool, String> {
        for what in ["create pods", "get pods", "delete pods", "create pods/exec"] {
            let (verb, kind) = what.split_once(' ').unwrap_or((what, ""));
            let answer = self.kubectl.ask(&["auth", "can-i", verb, kind], b"");
            // It says `no` and exits as if it had failed, which leaves no complaint.
            match answer {
                Ok(answer) if answer.trim() == "yes" => {}
                Err(complaint) if !complaint.is_empty() => return Err(complaint),
                _ => {
                    return Err(format!(
                        "this account may not {what} in the namespace {}. Bind it to a Role that allows \
                         it; docs/interpreter.md has one",
                        self.settings.namespace
                    ));
                }
            }
        }
        self.sweep();
        let policy = manifest::no_network(&self.settings).to_string();
        Ok(self
            .kubectl
            .ask(&["apply", "--filename=-"], policy.as_bytes())
            .is_ok())
    }

    fn sweep(&self) {
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

    /// Make a session's pod, and give it what it is given.
    async fn make(&self, order: &Order) -> Result<Pod, String> {
        let name = format!(
            "pybench-{}-{:016x}",
            std::process::id(),
            rand::random::<u64>()
        );
        let view = View::new(&self.environment, None, false);
        let wish = Wish {
            name: &name,
            owner: &format!("{}-{}", host(), std::process::id()),
            user: self.settings.first_user + u32::from(rand::random::<u16>()),
            limits: &order.spec.limits,
            workspace: order.workspace.most(),
            temporary: order.temporary(),
            read_only: order.workspace.read_only(),
            variables: &view.variables,
        };
        let manifest = manifest::pod(&wish, &self.settings).to_string();
        let pod = Pod {
            kubectl: self.kubectl.clone(),
            name,
        };
        self.kubectl
            .asked(&["create", "--filename=-"], manifest.into_bytes())
            .await?;
        self.until(&pod.name, &Phase::Receives).await?;
        let sent = self.give(&pod.name, &order.workspace).await;
        sent.map_err(|error| format!("sending files to the pod: {error}"))?;
        self.until(&pod.name, &Phase::Runs).await?;
        Ok(pod)
    }

    /// Wait until a pod is so far.
    async fn until(&self, pod: &str, wanted: &Phase) -> Result<(), String> {
        let until = Instant::now() + Duration::from_secs(self.settings.start_seconds);
        loop {
            let text = self
                .kubectl
                .asked(&["get", "pod", pod, "--output=json"], Vec::new())
                .await?;
            let seen: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            let waits = match manifest::phase(&seen) {
                phase if phase == *wanted => return Ok(()),
                Phase::Fails(why) => return Err(format!("the pod does not run: {why}")),
                Phase::Waits(why) => why,
                Phase::Receives | Phase::Runs => String::new(),
            };
            if Instant::now() > until {
                let seconds = self.settings.start_seconds;
                return Err(format!("the pod does not run after {seconds} s: {waits}"));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Send the runner and the workspace as it begins.
    async fn give(&self, pod: &str, workspace: &Workspace) -> io::Result<()> {
        let program = ["/opt/env/bin/python", "-I", "-c", given::RECEIVE].map(str::to_owned);
        let mut child = Command::from(self.kubectl.exec(pod, RECEIVER, &program))
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let mut input = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let send = async {
            given::send(&mut input, &self.environment.runner, "pybench").await?;
            for inner in workspace.read_only() {
                given::send(
                    &mut input,
                    &workspace.path().join(inner),
                    &format!("workspace/{inner}"),
                )
                .await?;
            }
            given::finish(&mut input).await
        };
        let limit = Duration::from_secs(self.settings.start_seconds);
        let sent = tokio::time::timeout(limit, send).await?;
        drop(input);
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output()).await??;
        match String::from_utf8_lossy(&output.stdout).trim() {
            "ok" => sent,
            _ => Err(io::Error::other(
                String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            )),
        }
    }

    /// Start a program of ours beside the session in its pod, to hear what it says. It ends with the first.
    fn beside(&self, workspace: &Workspace, program: &[&str]) -> io::Result<(Child, ChildStdout)> {
        let pod = workspace.kept::<Pod>().ok_or(io::ErrorKind::NotFound)?;
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

    /// Start the runner in a pod. Must run on a thread of the launcher.
    fn try_launch(&self, pod: &str, order: Order) -> io::Result<Started> {
        let (ends, inside) = Ends::make()?;
        // A pod's network is the cluster's: the filter refuses what the policy may not keep in.
        let begin = command("attached", Some(&seccomp::program_offline()), false);
        let mut exec = self.kubectl.exec(pod, SESSION, &begin);
        // SAFETY: between fork and exec only system calls are made; nothing is allocated or locked.
        unsafe { exec.pre_exec(|| enter(&[], &[], None)) };
        let monitor = exec.stderr(ends.streams[1].try_clone()?).spawn()?;
        Ok(Started {
            first: first_of(&monitor)?,
            // Its input ends with `kubectl`: the relay ends all that is its own, and what it cannot the
            // pod's first process does.
            remove: Box::new(|| {}),
            order,
            ends,
            inside,
            monitor,
            door: None,
        })
    }
}

#[async_trait]
impl Engine for Kubernetes {
    async fn launch(&self, order: Order) -> Result<Sandbox, InterpreterError> {
        let failed =
            |why: String| InterpreterError::Start(format!("kubernetes: {}", explained(&why)));
        if order.workspace.kept::<Pod>().is_none() {
            let pod = self.make(&order).await.map_err(failed)?;
            order.workspace.keep(pod);
        }
        let pod = order
            .workspace
            .kept::<Pod>()
            .map(|pod| pod.name.clone())
            .unwrap_or_default();
        let this = self.clone();
        let started = self
            .worker
            .run(move || this.try_launch(&pod, order))
            .await?;
        started
            .and_then(Started::connect)
            .map_err(|error| failed(error.to_string()))
    }

    fn bounds(&self) -> Option<Bounds> {
        Some(Bounds {
            memory: true,
            processes: false,
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
            let program = [given::SEND, &files.to_string(), &bytes.to_string()];
            let (_child, output) = self.beside(workspace, &program)?;
            given::receive(&mut tokio::io::BufReader::new(output), limits).await
        };
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let collected = tokio::time::timeout(COLLECT_PATIENCE, collect).await;
        collected.map_err(late).flatten().map_err(failed)
    }

    async fn digest(&self, workspace: &Workspace) -> Result<String, InterpreterError> {
        let failed = |source| InterpreterError::Io {
            context: "comparing workspaces in pods".to_owned(),
            source,
        };
        let ask = async {
            let (_child, output) = self.beside(workspace, &[given::DIGEST])?;
            let mut said = String::new();
            output.take(100).read_to_string(&mut said).await?;
            match said.trim() {
                digest if digest.len() == 64 => Ok(digest.to_owned()),
                _ => Err(io::Error::other(
                    "a workspace cannot be read, or is too large",
                )),
            }
        };
        let late = |_| io::Error::from(io::ErrorKind::TimedOut);
        let asked = tokio::time::timeout(COLLECT_PATIENCE, ask).await;
        asked.map_err(late).flatten().map_err(failed)
    }

    fn warnings(&self) -> Vec<&'static str> {
        let unguarded = "the cluster's network policy could not be made: the system call filter alone keeps \
                         sessions from the network";
        match self.guarded {
            true => Vec::new(),
            false => vec![unguarded],
        }
    }
}

/// This machine, in a word that can be part of a label.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    blake3::hash(name.as_bytes()).to_hex()[..12].to_owned()
}

/// What `kubectl` complains of, and what to do about it.
fn explained(complaint: &str) -> String {
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
        "The cluster refuses it: docs/interpreter.md has the Role and the namespace that sessions need"
    } else if says(&["namespaces", "not found"]) && lower.contains("namespaces") {
        "Make the namespace with: kubectl create namespace, or name another in the settings"
    } else if says(&["runtimeclass"]) {
        "Install that RuntimeClass, or name another as `runtime_class`"
    } else if says(&["errimage", "imagepull", "invalidimagename"]) {
        "Push the image to where the nodes pull it, and see `image` and `image_pull_secret`"
    } else {
        return complaint.to_owned();
    };
    format!("{complaint}. {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_as_they_are_given() {
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
    fn complaints_name_the_way_out() {
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
                explained(complaint).contains(remedy),
                "{}",
                explained(complaint)
            );
        }
        assert_eq!(explained("something else"), "something else");
    }
}
