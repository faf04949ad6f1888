"""Runs cells for the host, as `runner.main(control_fd, interrupt_fd)` or forked from a warm server.

The host sends `init`, then `execute` per cell. Everything that cells do is untrusted from the first
`execute` on: the host believes nothing of what this process says, and kills it at the end.
"""

import fcntl
import os
import resource
import signal
import socket
import sys

from . import hooks, syscalls
from . import shell as shells
from .wire import Wire

OOM_SCORE = 500  # higher than that of the warm server


def take(fd, number):
    """Moves an inherited fd to a fixed number, so that the numbers cells see never differ."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, number)
    os.close(fd)
    return moved


def arm_interrupt(fd):
    """A byte on this socket (the cell's number, its last eight bits) becomes SIGINT for the whole process
    group: no thread, no pid known to the host, and it works while C code runs."""
    os.setpgid(0, 0)
    fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpid())
    fcntl.fcntl(fd, 10, signal.SIGINT)  # F_SETSIG
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)


def address_space():
    """Bytes of it that this process has already."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def apply_limits(limits):
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        _soft, hard = resource.getrlimit(kind)
        if name == "AS":  # what a session may add to what packages imported beforehand take
            value += address_space()
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


def signal_others(number):
    """To all processes of the session but this one, at once, so that none can start another before it is
    reached. The first process of the namespace is spared by the kernel."""
    try:
        os.kill(-1, number)
    except ProcessLookupError:
        pass  # there is none


def interrupted_before(fd, cell):
    """Whether the interrupt of this cell came while none was heeded."""
    try:
        return cell & 0xFF in os.read(fd, 1 << 16)
    except BlockingIOError:
        return False


def remember(folder):
    """The files below a folder, for `restore` to write again where it is empty."""
    found = []
    for root, folders, files in os.walk(folder):
        found.append((root, None))
        for name in files:
            with open(os.path.join(root, name), "rb") as file:
                found.append((file.name, file.read()))
    return found


def restore(found):
    for path, content in found:
        if content is None:
            os.makedirs(path, exist_ok=True)
        else:
            with open(path, "wb") as file:
                file.write(content)


class Runner:
    """Everything that can be made before a session exists."""

    def __init__(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self.wire = Wire()
        stdout, stderr = shells.Stream(1, self.wire), shells.Stream(2, self.wire)
        sys.stdout = sys.__stdout__ = stdout
        sys.stderr = sys.__stderr__ = stderr
        self.shell = shells.build(self.wire, stdout, stderr)
        self.hooks = hooks.Hooks(self.wire)
        self.ipython = remember(os.environ["IPYTHONDIR"])

    def connect(self, control, interrupt):
        """Hear the host."""
        control, self.interrupt = take(control, 100), take(interrupt, 101)
        self.wire.connect(socket.socket(fileno=control))

    def hand_over_listener(self, port):
        """A port of this session's own loopback, at which the host answers as a proxy: the socket belongs to
        this network namespace, whoever accepts on it."""
        with socket.create_server(("127.0.0.1", port), backlog=64) as listener:
            socket.send_fds(self.wire.socket, [b"p"], [listener.fileno()])

    def run(self):
        """Serve until the host hangs up."""
        arm_interrupt(self.interrupt)
        init = self.wire.receive()
        if init is None:
            return
        apply_limits(init["limits"])
        syscalls.prefer_as_victim(OOM_SCORE)
        restore(self.ipython)
        if init["proxy"]:
            self.hand_over_listener(init["proxy"])
        self.wire.open()
        self.hooks.begin(init["seed"], init["system_randomness"])
        sys.path[0] = ""  # the workspace, in place of the runner's folder
        sys.argv[:] = [""]
        self.wire.send("ready")
        alone = os.getppid() == 1  # no process of others is in this namespace
        serve(self.wire, self.shell, self.interrupt, pause=init["pause"] and alone)


def main(control, interrupt):
    """A session in a process of its own."""
    runner = Runner()
    runner.connect(control, interrupt)
    runner.run()
    os._exit(0)


def serve(wire, shell, interrupt, pause):
    """`pause`: what a cell has left running stands still until the next one."""
    while (request := wire.receive()) is not None:
        wire.begin(request["cell"])
        if pause:
            signal_others(signal.SIGCONT)
        error = None
        try:
            signal.signal(signal.SIGINT, wire.on_interrupt)
            if interrupted_before(interrupt, request["cell"]):
                raise KeyboardInterrupt
            error = shells.run(shell, request["code"])
        except KeyboardInterrupt:
            error = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": "KeyboardInterrupt"}
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        if pause:
            signal_others(signal.SIGSTOP)
        wire.interrupted = False
        if error is not None:
            wire.send("error", **error)
        wire.send("done")
