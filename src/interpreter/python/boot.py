"""Begins a session in a container, whoever made it: the last steps to powerlessness are ours.

Usage: `boot.gvisor(filter)` and `boot.attached(filter)` with the host's relay on standard input and output,
`boot.hold()` as the first process of a pod. `filter` is the system call filter, in base64; `way`: the session
has a way out.
"""

import base64
import importlib
import os
import signal
import time

from . import relay, syscalls
from .view import write

NOBODY = 65534
INSIDE_ID = 1000  # the session's user and group, as it sees them


def gvisor(filter, way=False):
    """A rootless sandbox knows but one user, its root: a namespace within makes it an ordinary one."""
    user, group = os.geteuid(), os.getegid()
    os.chown("/dev", NOBODY, NOBODY)  # mounted read-only, its devices could not be written either
    syscalls.unshare(syscalls.NEW_USER)
    write("/proc/self/uid_map", f"{INSIDE_ID} {user} 1\n")
    write("/proc/self/gid_map", f"{INSIDE_ID} {group} 1\n")
    relay.main(lambda control, interrupt: begin(filter, control, interrupt), signals=True, way=way)


def attached(filter, way=False):
    """In containers of other kinds."""
    os.makedirs("output", exist_ok=True)  # a pod's workspace begins empty
    relay.main(lambda control, interrupt: begin(filter, control, interrupt), way=way)


def begin(filter, control, interrupt):
    if packages := os.environ.get("PIP_TARGET"):
        os.makedirs(packages, exist_ok=True)
        importlib.invalidate_caches()  # Python has looked there before
    syscalls.drop_privileges(base64.b64decode(filter))
    from . import runner

    runner.main(control, interrupt)


def hold():
    """The first process of a pod, which no signal from inside can end. Sessions come by `exec`; what
    they leave behind becomes this one's child, and is ended."""
    syscalls.set_dumpable(False)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        relay.kill_children()
        time.sleep(1)
