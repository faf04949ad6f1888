#!/usr/bin/env python3
"""Stands in for kubectl and a cluster: the commands that pybench gives, and no others. A pod is a folder of
its volumes; each `exec` is a container of its own with those. `image` beside the stand-in is the root folder
of the only image there is, and `forbidden` there refuses everything."""

import json
import os
import shutil
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from stand_in import STATE, contain, refuse


def main(words):
    namespace, *words = words
    namespace.startswith("--namespace=") or refuse(f"no namespace: {namespace}")
    match words:
        case ["auth", "can-i", _, _]:
            allowed = not os.path.exists(os.path.join(STATE, "forbidden"))
            print("yes" if allowed else "no")
            sys.exit(0 if allowed else 1)
        case ["apply", "--filename=-"]:
            kept("policies", json.load(sys.stdin))
        case ["create", "--filename=-"]:
            create(json.load(sys.stdin))
        case ["get", "pods", *_]:
            pass
        case ["get", "pod", name, "--output=json"]:
            print(json.dumps({"status": status(name)}))
        case ["delete", "pod", name, *_]:
            delete(name)
        case ["exec", "--stdin", "--quiet", name, "--container", container, "--", *command]:
            run(name, container, command)
        case _:
            refuse(f"unknown command {words}")


def pod(name, *path):
    return os.path.join(STATE, "pods", name, *path)


def kept(kind, thing):
    os.makedirs(folder := os.path.join(STATE, kind), exist_ok=True)
    with open(os.path.join(folder, thing["metadata"]["name"] + ".json"), "w") as file:
        json.dump(thing, file)


def create(manifest):
    name, spec = manifest["metadata"]["name"], manifest["spec"]
    user = spec["securityContext"]["runAsUser"]
    for volume in spec["volumes"]:
        os.makedirs(path := pod(name, "volumes", volume["name"]))
        if os.geteuid() == 0:
            os.chown(path, user, user)
    os.makedirs(pod(name, "running"))
    os.chmod(pod(name, "running"), 0o777)
    with open(pod(name, "manifest"), "w") as file:
        json.dump(manifest, file)


def status(name):
    given = os.path.exists(pod(name, "volumes/given/complete"))
    running, over = {"running": {}}, {"terminated": {"exitCode": 0}}
    if not os.path.exists(pod(name, "manifest")):
        refuse(f'pods "{name}" not found')
    return {
        "phase": "Running" if given else "Pending",
        "initContainerStatuses": [{"name": "receive", "state": over if given else running}],
        "containerStatuses": [{"name": "session", "state": running if given else {"waiting": {"reason": "PodInitializing"}}}],
    }


def delete(name):
    for pid in os.listdir(pod(name, "running")):
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    # At once, because processes that are dying may still write below it.
    os.makedirs(gone := os.path.join(STATE, "deleted"), exist_ok=True)
    os.rename(pod(name), os.path.join(gone, name))
    shutil.rmtree(os.path.join(gone, name), ignore_errors=True)


def run(name, container, command):
    with open(pod(name, "manifest")) as file:
        spec = json.load(file)["spec"]
    containers = {c["name"]: c for c in spec["initContainers"] + spec["containers"]}
    chosen = containers[container]
    mounts = []
    for mount in chosen["volumeMounts"]:
        source = os.path.join(pod(name, "volumes", mount["name"]), mount.get("subPath", ""))
        os.path.exists(source) or refuse(f"no {source}")
        mounts.append(("ro" if mount.get("readOnly") else "rw", source, mount["mountPath"]))
    with open(os.path.join(STATE, "image")) as file:
        image = json.load(file)
    mounts += [("ro", source, target) for source, target in image["binds"]]
    user = spec["securityContext"]["runAsUser"]
    open(pod(name, "running", str(os.getpid())), "w").close()
    variables = [(v["name"], v["value"]) for v in chosen.get("env", [])]
    contain(image["root"], mounts, variables, chosen.get("workingDir", "/"), user, user, command)


main(sys.argv[1:])
