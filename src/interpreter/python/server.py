"""The warm server: imports what cells need, then forks a session per request.

A request is one byte with file descriptors: the session's control and interrupt sockets, its stdout
and stderr, and the files through which it joins its control groups. All else the fork reads from its
own control socket, so that the server reads nothing but that byte, allocates the same for every
session, and hands all of them the same heap.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import traceback

from . import jail, syscalls
from .runner import Runner

# Imported before the fork, unless the host names others. Only what prints nothing, starts no thread of Python's and changes no variable.
WARM = [
    "numpy", "pandas", "matplotlib.pyplot", "matplotlib.backends.backend_agg", "matplotlib_inline.backend_inline",
    "PIL.Image", "PIL.PngImagePlugin", "scipy.stats", "jieba",
]  # fmt: skip
MAX_FDS = 8


def main(control, outside, rest):
    with open(rest, "rb") as file:
        file.seek(0)
        config = json.load(file)
    config["filter"] = bytes.fromhex(config["filter"])
    runner = Runner()
    warm_up(WARM if config["warm"] is None else config["warm"].split())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    syscalls.use_huge_pages()
    serve(socket.socket(fileno=control), outside, config, runner)


def warm_up(names):
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            pass  # an environment may lack it; the cell that asks for it is told
    tempfile.tempdir = "/tmp"  # looked for, it would draw a random number that a cold session does not draw
    if "jieba" in sys.modules and os.path.exists("/tmp/jieba.cache"):
        sys.modules["jieba"].initialize()  # its dictionary: seconds and 70 MB for each session otherwise


def serve(requests, outside, config, runner):
    while True:
        byte, fds, _flags, _address = socket.recv_fds(requests, 1, MAX_FDS)
        if not byte:
            os._exit(0)
        if os.fork() == 0:
            try:
                requests.close()
                session(fds, outside, config, runner)
            except BaseException:
                os.write(2, traceback.format_exc().encode())
            os._exit(1)
        for fd in fds:
            os.close(fd)


def session(fds, outside, config, runner):
    """In the fork. Three processes come of it: this one ends when it has told the host of the second,
    the first one of the jail; the third runs cells."""
    control, interrupt, stdout, stderr, *groups = fds
    os.dup2(stdout, 1), os.dup2(stderr, 2)
    os.close(stdout), os.close(stderr)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    runner.connect(control, interrupt)
    order = runner.wire.receive()
    if order is None:
        return
    jail.enter(order, config, outside, groups)
    first = os.fork()
    if first:
        socket.send_fds(runner.wire.socket, [b"j"], [os.pidfd_open(first)])
        os._exit(0)
    jail.close_door(config["filter"])
    child = os.fork()
    if child:
        jail.watch(child)
    runner.run()
    os._exit(0)
