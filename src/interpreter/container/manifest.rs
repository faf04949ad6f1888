//! The pod of a session, and what becomes of it, in the cluster's words.

use serde_json::{Value, json};

use super::describe::command;
use super::settings::ClusterSettings;
use crate::interpreter::Limits;

/// The container that receives what a session is given, before the session's own starts.
pub(super) const RECEIVER: &str = "receive";
/// The session's own.
pub(super) const SESSION: &str = "session";

/// Waits until everything has been received, for so many seconds.
const WAIT: &str = "\
import os, sys, time
for _ in range(10 * int(sys.argv[1])):
    if os.path.exists('/given/complete'): sys.exit()
    time.sleep(0.1)
sys.exit('nothing was received in time')";

/// What a pod is made for.
pub(super) struct Wish<'a> {
    pub(super) name: &'a str,
    /// The process that makes it, in a word that can be a label.
    pub(super) owner: &'a str,
    pub(super) user: u32,
    pub(super) limits: &'a Limits,
    /// Bytes that the workspace may hold.
    pub(super) workspace: u64,
    /// Bytes that each of the folders which begin empty may hold.
    pub(super) temporary: u64,
    /// Read-only parts of the workspace.
    pub(super) read_only: &'a [String],
    pub(super) variables: &'a [(&'static str, &'static str)],
}

/// The pod. It passes at the level `restricted` of pod security.
pub(super) fn pod(wish: &Wish<'_>, settings: &ClusterSettings) -> Value {
    let mut spec = json!({
        "restartPolicy": "Never",
        "activeDeadlineSeconds": settings.most_seconds,
        "terminationGracePeriodSeconds": 1,
        // Nothing of the cluster: no token, no names of services, no name server, no shared namespace.
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
            "runAsUser": wish.user,
            "runAsGroup": wish.user,
            "fsGroup": wish.user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [receiver(settings)],
        "containers": [session(wish, settings)],
        "volumes": [
            {"name": "given", "emptyDir": {"sizeLimit": wish.workspace}},
            memory("workspace", wish.workspace),
            memory("tmp", wish.temporary),
            memory("shm", wish.temporary),
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
        "pybench/owner": wish.owner,
    });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": wish.name, "namespace": settings.namespace, "labels": labels},
        "spec": spec,
    })
}

/// A policy that lets no packet in or out of any session.
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

/// What no container gets.
fn powerless() -> Value {
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
        "securityContext": powerless(),
        "resources": {"limits": small, "requests": small},
        "volumeMounts": [{"name": "given", "mountPath": "/given"}],
    })
}

fn session(wish: &Wish<'_>, settings: &ClusterSettings) -> Value {
    let mut mounts = vec![
        json!({"name": "given", "subPath": "pybench", "mountPath": "/opt/pybench", "readOnly": true}),
        json!({"name": "workspace", "mountPath": "/workspace"}),
        json!({"name": "tmp", "mountPath": "/tmp"}),
        json!({"name": "shm", "mountPath": "/dev/shm"}),
    ];
    mounts.extend(wish.read_only.iter().map(|inner| {
        let (from, to) = (format!("workspace/{inner}"), format!("/workspace/{inner}"));
        json!({"name": "given", "subPath": from, "mountPath": to, "readOnly": true})
    }));
    let variables = wish.variables.iter();
    let variables: Vec<Value> = variables
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    // What lies in its volumes in memory counts.
    let most = json!({"cpu": settings.cpu, "memory": format!("{}Mi", wish.limits.memory_mib), "ephemeral-storage": "64Mi"});
    json!({
        "name": SESSION,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": command("hold", None, false),
        "workingDir": "/workspace",
        "env": variables,
        "securityContext": powerless(),
        "resources": {"limits": most, "requests": most},
        "volumeMounts": mounts,
    })
}

/// How far a pod is.
#[derive(Debug, PartialEq)]
pub(super) enum Phase {
    /// Its node has yet to be found, its image to be pulled.
    Waits(String),
    /// It wants what the session is given.
    Receives,
    /// Sessions can be started in it.
    Runs,
    /// It will never run.
    Fails(String),
}

/// Reasons for which nothing is gained by waiting.
const FINAL: &[&str] = &[
    "ErrImageNeverPull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
];

/// Read it from the pod's description.
pub(super) fn phase(pod: &Value) -> Phase {
    let status = &pod["status"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let "Failed" | "Succeeded" = status["phase"].as_str().unwrap_or_default() {
        return Phase::Fails(format!(
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
            return Phase::Fails(full);
        }
        match (
            container["name"].as_str(),
            container["state"].get("running").is_some(),
        ) {
            (Some(SESSION), true) => return Phase::Runs,
            (Some(RECEIVER), true) => return Phase::Receives,
            _ if waits.is_empty() && !reason.is_empty() => waits = full,
            _ => {}
        }
    }
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let unschedulable = |c: &&Value| c["reason"] == "Unschedulable";
    match conditions.clone().find(unschedulable) {
        Some(condition) => {
            Phase::Waits(format!("no node takes it: {}", text(&condition["message"])))
        }
        None => Phase::Waits(waits),
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

    fn wish<'a>(limits: &'a Limits, read_only: &'a [String]) -> Wish<'a> {
        Wish {
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
    fn pods_as_they_are_made() {
        let read_only = ["data".to_owned(), "output/given.txt".to_owned()];
        let limits = Limits::default();
        let made = pod(&wish(&limits, &read_only), &settings());
        insta::assert_snapshot!("pod", serde_json::to_string_pretty(&made).unwrap());
        insta::assert_snapshot!(
            "no_network",
            serde_json::to_string_pretty(&no_network(&settings())).unwrap()
        );
    }

    #[test]
    fn choices_reach_the_pod() {
        let settings = ClusterSettings {
            runtime_class: Some("gvisor".to_owned()),
            user_namespace: true,
            node_selector: [("pool".to_owned(), "sessions".to_owned())].into(),
            image_pull_secret: Some("registry".to_owned()),
            ..settings()
        };
        let spec = pod(&wish(&Limits::default(), &[]), &settings)["spec"].clone();
        assert_eq!(spec["runtimeClassName"], "gvisor");
        assert_eq!(spec["hostUsers"], false);
        assert_eq!(spec["nodeSelector"]["pool"], "sessions");
        assert_eq!(spec["imagePullSecrets"][0]["name"], "registry");
    }

    #[test]
    fn phases_are_read() {
        let container = |name: &str, state: Value| json!({"name": name, "state": state});
        let running = json!({"running": {"startedAt": "x"}});
        let pulling =
            json!({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}});
        let of = |status: Value| phase(&json!({"status": status}));
        assert_eq!(of(json!({"phase": "Pending"})), Phase::Waits(String::new()));
        let unschedulable =
            json!({"conditions": [{"reason": "Unschedulable", "message": "0/3 nodes"}]});
        assert_eq!(
            of(unschedulable),
            Phase::Waits("no node takes it: 0/3 nodes".to_owned())
        );
        let initial = json!({
            "initContainerStatuses": [container(RECEIVER, running.clone())],
            "containerStatuses": [container(SESSION, json!({"waiting": {"reason": "PodInitializing"}}))],
        });
        assert_eq!(of(initial), Phase::Receives);
        let there = json!({
            "initContainerStatuses": [container(RECEIVER, json!({"terminated": {"exitCode": 0}}))],
            "containerStatuses": [container(SESSION, running)],
        });
        assert_eq!(of(there), Phase::Runs);
        let broken = json!({"initContainerStatuses": [container(RECEIVER, pulling)]});
        assert_eq!(
            of(broken),
            Phase::Fails("ImagePullBackOff: no such image".to_owned())
        );
        assert!(matches!(
            of(json!({"phase": "Failed", "reason": "Evicted"})),
            Phase::Fails(_)
        ));
    }
}
