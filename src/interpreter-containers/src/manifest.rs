//! The Kubernetes manifest of a session's pod, and the phases of a pod.

use serde_json::{Value, json};

use super::container_spec::command;
use super::settings::ClusterSettings;
use pybench_interpreter::Limits;

/// Name of the init container that receives the input files.
pub(super) const RECEIVER: &str = "receive";
/// Name of the session's container.
pub(super) const SESSION: &str = "session";

/// Python code that waits until all files have been received, for at most the given seconds.
const WAIT: &str = "\
import os, sys, time
for _ in range(10 * int(sys.argv[1])):
    if os.path.exists('/given/complete'): sys.exit()
    time.sleep(0.1)
sys.exit('nothing was received in time')";

/// Parameters of a session's pod.
pub(super) struct PodParams<'a> {
    pub(super) name: &'a str,
    /// Host and PID of the process that creates it, valid as a label.
    pub(super) owner: &'a str,
    pub(super) user: u32,
    pub(super) limits: &'a Limits,
    /// Size limit of the workspace, bytes.
    pub(super) workspace: u64,
    /// Size limit of each temporary folder, bytes.
    pub(super) temporary: u64,
    /// Read-only parts of the workspace.
    pub(super) read_only: &'a [String],
    pub(super) variables: &'a [(&'static str, &'static str)],
}

/// The pod manifest. It satisfies the pod security level `restricted`.
pub(super) fn pod(params: &PodParams<'_>, settings: &ClusterSettings) -> Value {
    let mut spec = json!({
        "restartPolicy": "Never",
        "activeDeadlineSeconds": settings.most_seconds,
        "terminationGracePeriodSeconds": 1,
        // No access to the cluster: no token, no service variables, no DNS, no shared namespaces.
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "dnsPolicy": "None",
        "dnsConfig": {"nameservers": ["127.0.0.1"]},
        "hostname": "sandbox",
        "hostNetwork": false,
        "hostPID": false,
        "hostIPC": false,
        "shareProcessNamespace": false,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": params.user,
            "runAsGroup": params.user,
            "fsGroup": params.user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [receiver(settings)],
        "containers": [session(params, settings)],
        "volumes": [
            {"name": "given", "emptyDir": {"sizeLimit": params.workspace}},
            memory("workspace", params.workspace),
            memory("tmp", params.temporary),
            memory("shm", params.temporary),
        ],
    });
    let chosen = [
        (
            "runtimeClassName",
            settings.runtime_class.as_ref().map(|name| json!(name)),
        ),
        ("hostUsers", settings.user_namespace.then(|| json!(false))),
        (
            "nodeSelector",
            (!settings.node_selector.is_empty()).then(|| json!(settings.node_selector)),
        ),
        (
            "imagePullSecrets",
            settings
                .image_pull_secret
                .as_ref()
                .map(|name| json!([{"name": name}])),
        ),
    ];
    for (key, value) in chosen {
        if let Some(value) = value {
            spec[key] = value;
        }
    }
    let labels = json!({
        "app.kubernetes.io/name": "pybench-session",
        "app.kubernetes.io/managed-by": "pybench",
        "pybench/owner": params.owner,
    });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": params.name, "namespace": settings.namespace, "labels": labels},
        "spec": spec,
    })
}

/// A network policy that blocks all traffic of sessions.
pub(super) fn no_network(settings: &ClusterSettings) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "pybench-sessions", "namespace": settings.namespace},
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "pybench-session"}},
            "policyTypes": ["Ingress", "Egress"],
        },
    })
}

fn memory(name: &str, bytes: u64) -> Value {
    json!({"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": bytes}})
}

fn restricted_security_context() -> Value {
    json!({
        "privileged": false,
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    })
}

fn receiver(settings: &ClusterSettings) -> Value {
    let small = json!({"cpu": settings.cpu, "memory": "128Mi"});
    json!({
        "name": RECEIVER,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/opt/env/bin/python", "-I", "-c", WAIT, settings.start_seconds.to_string()],
        "securityContext": restricted_security_context(),
        "resources": {"limits": small, "requests": small},
        "volumeMounts": [{"name": "given", "mountPath": "/given"}],
    })
}

fn session(params: &PodParams<'_>, settings: &ClusterSettings) -> Value {
    let mut mounts = vec![
        json!({"name": "given", "subPath": "pybench", "mountPath": "/opt/pybench", "readOnly": true}),
        json!({"name": "workspace", "mountPath": "/workspace"}),
        json!({"name": "tmp", "mountPath": "/tmp"}),
        json!({"name": "shm", "mountPath": "/dev/shm"}),
    ];
    mounts.extend(params.read_only.iter().map(|inner| {
        let (from, to) = (format!("workspace/{inner}"), format!("/workspace/{inner}"));
        json!({"name": "given", "subPath": from, "mountPath": to, "readOnly": true})
    }));
    let variables = params.variables.iter();
    let variables: Vec<Value> = variables
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    // Memory-backed volumes count toward the memory limit.
    let most = json!({"cpu": settings.cpu, "memory": format!("{}Mi", params.limits.memory_mib), "ephemeral-storage": "64Mi"});
    json!({
        "name": SESSION,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": command("hold", None, false),
        "workingDir": "/workspace",
        "env": variables,
        "securityContext": restricted_security_context(),
        "resources": {"limits": most, "requests": most},
        "volumeMounts": mounts,
    })
}

/// The phase of a pod.
#[derive(Debug, PartialEq)]
pub(super) enum Phase {
    /// It waits for a node or an image; the text is the reason.
    Pending(String),
    /// The init container waits for the input files.
    Receiving,
    /// The session's container runs.
    Running,
    /// It cannot start; the text is the reason.
    Failed(String),
}

/// Waiting reasons that do not resolve by themselves.
const FINAL: &[&str] = &[
    "ErrImageNeverPull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
];

/// Reads the phase from a pod's JSON.
pub(super) fn phase(pod: &Value) -> Phase {
    let status = &pod["status"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let "Failed" | "Succeeded" = status["phase"].as_str().unwrap_or_default() {
        return Phase::Failed(format!(
            "{} {}",
            text(&status["reason"]),
            text(&status["message"])
        ));
    }
    let kinds = ["initContainerStatuses", "containerStatuses"];
    let mut waits = String::new();
    for container in kinds
        .iter()
        .filter_map(|kind| status[*kind].as_array())
        .flatten()
    {
        let waiting = &container["state"]["waiting"];
        let reason = text(&waiting["reason"]);
        let full = format!("{reason}: {}", text(&waiting["message"]));
        if FINAL.contains(&reason.as_str()) {
            return Phase::Failed(full);
        }
        match (
            container["name"].as_str(),
            container["state"].get("running").is_some(),
        ) {
            (Some(SESSION), true) => return Phase::Running,
            (Some(RECEIVER), true) => return Phase::Receiving,
            _ if waits.is_empty() && !reason.is_empty() => waits = full,
            _ => {}
        }
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let unschedulable = |c: &&Value| c["reason"] == "Unschedulable";
    match conditions.clone().find(unschedulable) {
        Some(condition) => Phase::Pending(format!(
            "no node can run it: {}",
            text(&condition["message"])
        )),
        None => Phase::Pending(waits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ClusterSettings {
        ClusterSettings {
            image: Some("registry.example/pybench:1".to_owned()),
            ..ClusterSettings::default()
        }
    }

    fn params<'a>(limits: &'a Limits, read_only: &'a [String]) -> PodParams<'a> {
        PodParams {
            name: "pybench-1-x",
            owner: "host-1",
            user: 2_000_000_001,
            limits,
            workspace: 1 << 30,
            temporary: 1 << 29,
            read_only,
            variables: &[("HOME", "/tmp")],
        }
    }

    #[test]
    fn manifests_match_the_snapshots() {
        let read_only = ["data".to_owned(), "output/given.txt".to_owned()];
        let limits = Limits::default();
        let made = pod(&params(&limits, &read_only), &settings());
        insta::assert_snapshot!("pod", serde_json::to_string_pretty(&made).unwrap());
        insta::assert_snapshot!(
            "no_network",
            serde_json::to_string_pretty(&no_network(&settings())).unwrap()
        );
    }

    #[test]
    fn settings_are_part_of_the_pod() {
        let settings = ClusterSettings {
            runtime_class: Some("gvisor".to_owned()),
            user_namespace: true,
            node_selector: [("pool".to_owned(), "sessions".to_owned())].into(),
            image_pull_secret: Some("registry".to_owned()),
            ..settings()
        };
        let spec = pod(&params(&Limits::default(), &[]), &settings)["spec"].clone();
        assert_eq!(spec["runtimeClassName"], "gvisor");
        assert_eq!(spec["hostUsers"], false);
        assert_eq!(spec["nodeSelector"]["pool"], "sessions");
        assert_eq!(spec["imagePullSecrets"][0]["name"], "registry");
    }

    #[test]
    fn phases_are_recognized() {
        let container = |name: &str, state: Value| json!({"name": name, "state": state});
        let running = json!({"running": {"startedAt": "x"}});
        let pulling =
            json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
        let of = |status: Value| phase(&json!({"status": status}));
        assert_eq!(
            of(json!({"phase": "Pending"})),
            Phase::Pending(String::new())
        );
        let unschedulable =
            json!({"conditions": [{"reason": "Unschedulable", "message": "0/3 nodes"}]});
        assert_eq!(
            of(unschedulable),
            Phase::Pending("no node can run it: 0/3 nodes".to_owned())
        );
        let initial = json!({
            "initContainerStatuses": [container(RECEIVER, running.clone())],
            "containerStatuses": [container(SESSION, json!({"waiting": {"reason": "PodInitializing"}}))],
        });
        assert_eq!(of(initial), Phase::Receiving);
        let there = json!({
            "initContainerStatuses": [container(RECEIVER, json!({"terminated": {"exitCode": 0}}))],
            "containerStatuses": [container(SESSION, running)],
        });
        assert_eq!(of(there), Phase::Running);
        let broken = json!({"initContainerStatuses": [container(RECEIVER, pulling)]});
        assert_eq!(
            of(broken),
            Phase::Failed("ImagePullBackOff: no such image".to_owned())
        );
        assert!(matches!(
            of(json!({"phase": "Failed", "reason": "Evicted"})),
            Phase::Failed(_)
        ));
    }
}
