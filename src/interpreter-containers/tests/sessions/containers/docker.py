#!/usr/bin/env python3
"""Stands in for docker and podman where there is none: the commands that pybench gives, and no others."""

import csv
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from stand_in import STATE, contain, refuse

ALONE = {
    "--rm", "--interactive", "--read-only", "--no-healthcheck", "--http-proxy=false", "--no-hosts",
    "--read-only-tmpfs=false", "--systemd=false",
}  # fmt: skip
WITH_VALUE = {
    "--name", "--label", "--network", "--ipc", "--hostname", "--cap-drop", "--security-opt", "--ulimit", "--log-driver",
    "--user", "--sdnotify", "--userns", "--cgroups", "--pids-limit", "--memory", "--memory-swap", "--runtime",
    "--cpu-period", "--cpu-quota", "--shm-size", "--tmpfs", "--mount", "--env", "--workdir", "--entrypoint", "--pull",
}  # fmt: skip
MUST = {
    "--network": "none", "--cap-drop": "ALL", "--security-opt": "no-new-privileges", "--pull": "never", "--ipc": "private",
}  # fmt: skip


def main(words):
    match words:
        case ["ps", *_]:
            print("\n".join(name for name in os.listdir(folder("containers")) if process(name)))
        case ["rm", "--force", name]:
            end(name)
        case ["image", "inspect", image]:
            os.path.isdir(image_folder(image)) or refuse(f"no such image: {image}")
        case ["import", "-", image]:
            os.makedirs(image_folder(image))
            subprocess.run(["tar", "-x", "-C", image_folder(image)], check=True)
        case ["run", *rest]:
            run(rest)
        case _:
            refuse(f"unknown command {words}")


def folder(name):
    path = os.path.join(STATE, name)
    os.makedirs(path, exist_ok=True)
    return path


def image_folder(image):
    return os.path.join(folder("images"), image.replace("/", "_"))


def process(name):
    try:
        pid = int(open(os.path.join(folder("containers"), name)).read())
        os.kill(pid, 0)
        return pid
    except (OSError, ValueError):
        return None


def end(name):
    if pid := process(name):
        os.kill(pid, signal.SIGKILL)
    if os.path.exists(path := os.path.join(folder("containers"), name)):
        os.remove(path)


def options(words):
    """The options and what follows them."""
    found = []
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in WITH_VALUE:
            found.append((word, words.pop(0)))
        elif word in ALONE:
            found.append((word, None))
        else:
            refuse(f"unknown option {word}")
    return found, words


def run(words):
    found, (image, *command) = options(words)
    values = dict(found)
    for option in ("--rm", "--interactive", "--read-only"):
        option in values or refuse(f"without {option}")
    for must in MUST.items():
        must in found or refuse(f"without {must}")
    mounts = [("tmpfs", values["--shm-size"], "/dev/shm")]
    for option, value in found:
        if option == "--tmpfs":
            target, _, details = value.partition(":")
            mounts.append(("tmpfs", dict(d.partition("=")[::2] for d in details.split(","))["size"], target))
        elif option == "--mount":
            fields = dict(field.partition("=")[::2] for field in next(csv.reader([value])))
            mounts.append(("ro" if "readonly" in fields else "rw", fields["src"], fields["dst"]))
    user, group = map(int, values["--user"].split(":"))
    with open(os.path.join(folder("containers"), values["--name"]), "w") as file:
        file.write(str(os.getpid()))
    variables = [value.split("=", 1) for option, value in found if option == "--env"]
    command = [values["--entrypoint"], *command]
    contain(image_folder(image), mounts, variables, values["--workdir"], user, group, command)


main(sys.argv[1:])
