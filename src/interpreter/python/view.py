"""Builds what all sessions of an environment see, and starts the warm server in it.

Usage: view.main(control_fd, parent_pid), with a configuration (JSON) on standard input. Three processes
come of it: the one that was started, which waits; the first one of a process namespace, in which the
server and its sessions live and which outlives the server; and the server. If one of the first two
dies, and the first does when the host does, the kernel kills all that are below.

The mount namespace afterward: `/view`, the read-only tree that becomes a session's root; `/sessions`,
where the host makes workspaces. Nothing else of the host is left.
"""

import json
import os
import resource
import signal
import socket
import sys

from . import syscalls
from .syscalls import NODEV, NOEXEC, NOSUID, RDONLY

MAX_FDS = 1 << 16  # above any that we were given
MAX_PENDING_SIGNALS = 1 << 15  # of all sessions together
OOM_SCORE = 300  # sessions raise theirs further; where CAP_SYS_RESOURCE has set it, they cannot go below

# Paths of the devices that a session has, and the links beside them.
DEVICES = ["null", "zero", "full", "random", "urandom", "tty"]
DEVICE_LINKS = {
    "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2",
    "fd": "/proc/self/fd", "core": "/proc/kcore", "ptmx": "pts/ptmx",
}  # fmt: skip


def main(control, parent):
    try:
        start(control, parent)
    except OSError as error:
        sys.exit(f"{error}")


def start(control, parent):
    config = json.load(sys.stdin)
    os.closerange(3, control), os.closerange(control + 1, MAX_FDS)
    syscalls.prefer_as_victim(OOM_SCORE)
    spare_signals()
    enter_namespaces(config["users"])
    syscalls.die_with_parent()
    if os.getppid() != parent:
        return
    alive, held = os.pipe()
    first = os.fork()
    if first:
        os.close(control)
        signal.signal(signal.SIGTERM, lambda *_: os.kill(first, signal.SIGKILL))
        os._exit(os.waitstatus_to_exitcode(os.waitpid(first, 0)[1]) & 0xFF)
    os.close(held)
    syscalls.die_with_parent()
    os.set_blocking(alive, False)
    try:
        os.read(alive, 1)
        return  # the parent died before we could say that we die with it
    except BlockingIOError:
        os.close(alive)
    build(config)
    try_jail()
    socket.socket(fileno=os.dup(control)).sendall(b"v")
    if os.fork() == 0:
        serve(control, config)
    os.closerange(0, MAX_FDS)
    reap()


def reap():
    """As the first process of a namespace: wait for all others."""
    try:
        while True:
            os.wait()
    except ChildProcessError:
        os._exit(0)


def spare_signals():
    """Pending signals of sessions count as those of the user who runs this, too: half of them stay for others."""
    most, _hard = resource.getrlimit(resource.RLIMIT_SIGPENDING)
    half = MAX_PENDING_SIGNALS if most == resource.RLIM_INFINITY else min(most // 2, MAX_PENDING_SIGNALS)
    resource.setrlimit(resource.RLIMIT_SIGPENDING, (half, half))


def enter_namespaces(users):
    """Root becomes the first of `users` (first, count), others stay who they are; inside, it is root."""
    if users is None:
        mapped = [(0, os.geteuid(), 1)], [(0, os.getegid(), 1)]
        leave()
        write("/proc/self/setgroups", "deny")
        write_maps("/proc/self", *mapped)
        return
    process, (ready, go) = os.getpid(), os.pipe()
    helper = os.fork()
    if helper == 0:  # only from outside can several users be mapped
        os.close(go)
        if os.read(ready, 1):
            write_maps(f"/proc/{process}", [(0, *users)], [(0, *users)])
        os._exit(0)
    leave()
    os.write(go, b"x")
    os.close(go), os.close(ready)
    if os.waitpid(helper, 0)[1]:
        raise OSError("the users of sessions cannot be mapped here")
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    syscalls.set_dumpable(True)


def leave():
    try:
        syscalls.unshare(syscalls.NEW_NAMESPACES)
    except OSError as error:
        raise OSError(
            f"user namespaces are refused ({error.strerror}); see the settings user.max_user_namespaces, "
            "kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns"
        ) from None


def write_maps(process, users, groups):
    for name, lines in (("uid_map", users), ("gid_map", groups)):
        write(f"{process}/{name}", "".join("%d %d %d\n" % line for line in lines))


def write(path, text):
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def build(config):
    """Make `/view` and `/sessions` the whole file system."""
    umask = os.umask(0o022)
    syscalls.propagate(private=False)
    syscalls.mount("tmpfs", "/tmp", NOSUID | NODEV, "mode=0755,size=16m")
    os.chdir("/tmp")
    for folder in ("old", "view", "sessions"):
        os.mkdir(folder)
    syscalls.pivot_root(".", "old")
    os.chdir("/")
    syscalls.bind("/old" + config["sessions"], "/sessions")
    fill(config)
    syscalls.unmount("/old")
    os.rmdir("/old")
    os.umask(umask)


def fill(config):
    syscalls.mount("tmpfs", "/view", NOSUID | NODEV, "mode=0755,size=16m")
    for source, target in config["binds"]:
        show("/old" + source, "/view" + target, RDONLY | NOSUID | NODEV)
    for target, path in config["links"]:
        link(target, "/view" + path)
    for folder in config["folders"]:
        os.makedirs("/view" + folder, exist_ok=True)
    for name in DEVICES:
        show(f"/old/dev/{name}", f"/view/dev/{name}", NOSUID | NOEXEC)
    for name, path in DEVICE_LINKS.items():
        link(path, f"/view/dev/{name}")
    syscalls.restrict("/view", RDONLY, recursive=False)
    syscalls.mount("proc", "/view/proc", NOSUID | NODEV | NOEXEC)
    syscalls.mount("tmpfs", "/view/tmp", NOSUID | NODEV, "mode=0755,size=64m")
    show_caches(config)


def show(source, target, attributes):
    """Bind a file or folder with what is mounted below it; it is made at the target first."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
    syscalls.bind(source, target)
    syscalls.restrict(target, attributes)


def link(target, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.symlink(target, path)


def show_caches(config):
    """What set-up has prepared in `/tmp`. Here and in every session."""
    for source, target in config["caches"]:
        show("/view" + source, "/view" + target, RDONLY | NOSUID | NODEV)
    for folder in config["temporary"]:
        os.makedirs("/view" + folder, exist_ok=True)


def try_jail():
    """Fail now rather than at the first session, where namespaces within namespaces are refused."""
    child = os.fork()
    if child == 0:
        try:
            syscalls.unshare(syscalls.NEW_NAMESPACES | syscalls.NEW_CGROUP)
            if os.fork() == 0:
                syscalls.mount("proc", "/view/proc")
                os._exit(0)
            os._exit(os.waitstatus_to_exitcode(os.wait()[1]) & 0xFF)
        except BaseException as error:
            print(f"jails within a jail are refused: {error}", file=sys.stderr, flush=True)
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise OSError("a session cannot be jailed here")


def serve(control, config):
    """Become the server."""
    outside = os.open("/", os.O_PATH | os.O_DIRECTORY)
    rest = os.memfd_create("config", 0)
    os.write(rest, json.dumps(config).encode())
    for fd in (control, outside, rest):
        os.set_inheritable(fd, True)
    os.chroot("/view")
    os.chdir("/workspace")
    code = (
        "import sys; sys.path.insert(0, '/opt/pybench/lib'); "
        f"from pybench_runner import server; server.main({control}, {outside}, {rest})"
    )
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    syscalls.equal_addresses()
    python = "/opt/env/bin/python"
    os.execve(python, [python, "-P", "-u", "-c", code], dict(config["variables"]))
