"""Runs cells for the host, which starts it as `runner.main(control_fd, interrupt_fd)`.

The host sends `init`, then `execute` per cell. Everything that cells do is untrusted from the first
`execute` on: the host believes nothing of what this process says, and kills it at the end.
"""

import fcntl
import os
import resource
import signal
import socket
import sys

from . import hooks
from . import shell as shells
from .wire import Wire


def take(fd, number):
    """Moves an inherited fd to a fixed number, so that the numbers cells see never differ."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, number)
    os.close(fd)
    return moved


def arm_interrupt(fd):
    """A byte on this socket becomes SIGINT for the whole process group: no thread, no pid known to
    the host, and it works while C code runs."""
    os.setpgid(0, 0)
    fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpid())
    fcntl.fcntl(fd, 10, signal.SIGINT)  # F_SETSIG
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)


def apply_limits(limits):
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _soft, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


def prefer_as_victim():
    """Out of memory, the kernel should take the process that holds the cell's data."""
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")


def main(control, interrupt):
    """Serve until the host hangs up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control, interrupt = take(control, 100), take(interrupt, 101)
    arm_interrupt(interrupt)
    wire = Wire(socket.socket(fileno=control), [1, 2])
    init = wire.receive()
    if init is None:
        return
    apply_limits(init["limits"])
    prefer_as_victim()
    stdout, stderr = shells.Stream(1, wire), shells.Stream(2, wire)
    sys.stdout = sys.__stdout__ = stdout
    sys.stderr = sys.__stderr__ = stderr
    shell = shells.build(wire, stdout, stderr)
    hooks.install(init["seed"], wire)
    sys.path[0] = ""  # the workspace, in place of the runner's folder
    sys.argv[:] = [""]
    wire.send("ready")
    serve(wire, shell)
    os._exit(0)


def serve(wire, shell):
    while (request := wire.receive()) is not None:
        wire.begin(request["cell"])
        signal.signal(signal.SIGINT, wire.on_interrupt)
        error = None
        try:
            error = shells.run(shell, request["code"])
        except KeyboardInterrupt:
            error = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": "KeyboardInterrupt"}
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        wire.interrupted = False
        if error is not None:
            wire.send("error", **error)
        wire.send("done")
