"""How a fork of the warm server becomes a session's jail. See `docs/jail.md` for the order.

`enter` takes it out of the server's world, `close_door` makes the first process of the new one
powerless; between them that process is forked, after them the session's own. `begin` is all that is
left to do where bubblewrap has made the namespaces.
"""

import fcntl
import os
import resource
import signal
import socket
import struct

from . import syscalls
from .syscalls import NODEV, NOEXEC, NOSUID, RDONLY
from .view import MAX_FDS, show_caches, write, write_maps

PROC = "/view/proc"
INSIDE_ID = 1000  # the session's user and group, as it sees them
MAX_PENDING_SIGNALS = 1024  # the host's limit in the tier `bwrap` is the same
MAX_TERMINALS = 64

# A session's buffers for each of its connections, and how many that were closed are kept for a while.
NETWORK = {"tcp_rmem": "4096 65536 524288", "tcp_wmem": "4096 16384 524288", "tcp_max_tw_buckets": "1024"}


def enter(order, config, outside, groups):
    """Join the control groups, become the session's user, leave for new namespaces, and arrange in
    `/view` what the session will see."""
    for group in groups:
        os.write(group, b"0")
        os.close(group)
    os.fchdir(outside)  # whoever lives in a chroot cannot make a user namespace
    os.chroot(".")
    os.close(outside)
    user = order["user"]
    if user:
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    pending = min(resource.getrlimit(resource.RLIMIT_SIGPENDING)[1], MAX_PENDING_SIGNALS)  # `view.py` has set one
    resource.setrlimit(resource.RLIMIT_SIGPENDING, (pending, pending))
    syscalls.set_dumpable(True)
    user, group = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.NEW_NAMESPACES | syscalls.NEW_CGROUP)
    write(f"{PROC}/self/setgroups", "deny")
    write_maps(f"{PROC}/self", [(INSIDE_ID, user, 1)], [(INSIDE_ID, group, 1)])
    syscalls.propagate(private=True)
    arrange(order, config)
    socket.sethostname("sandbox")
    for name, value in NETWORK.items():
        write(f"{PROC}/sys/net/ipv4/{name}", value)
    raise_loopback()


def arrange(order, config):
    umask = os.umask(0o022)
    syscalls.bind("/view", "/view")  # one that is not locked to its place
    for folder in ("/tmp", "/dev/shm"):
        syscalls.mount("tmpfs", "/view" + folder, NOSUID | NODEV, f"mode=0755,size={order['temporary']}")
    syscalls.mount("devpts", "/view/dev/pts", NOSUID | NOEXEC, f"newinstance,ptmxmode=0666,mode=620,max={MAX_TERMINALS}")
    show_caches(config)
    workspace = "/view/workspace"
    syscalls.bind("/sessions/" + order["workspace"], workspace)
    syscalls.restrict(workspace, NOSUID | NODEV)
    for inner in order["read_only"]:
        path = f"{workspace}/{inner}"
        syscalls.bind(path, path)
        syscalls.restrict(path, RDONLY)
    os.umask(umask)


def raise_loopback():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        up = struct.pack("16sh14x", b"lo", 1)  # IFF_UP
        fcntl.ioctl(sock, 0x8914, up)  # SIOCSIFFLAGS


def close_door(program):
    """In the first process of the new process namespace. Nothing of what was before can be reached
    afterward."""
    syscalls.mount("proc", "/view/proc", NOSUID | NODEV | NOEXEC)
    os.chdir("/view")
    syscalls.pivot_root(".", ".")
    syscalls.unmount(".")
    os.chdir("/workspace")
    write("/proc/sys/user/max_user_namespaces", "0")
    os.setsid()
    syscalls.drop_privileges(program)


def watch(child):
    """The first process ends, and with it all others, when the session's own does."""
    syscalls.set_dumpable(False)
    os.closerange(0, MAX_FDS)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    while os.wait()[0] != child:
        pass
    os._exit(0)


def begin(control, interrupt):
    """As the first process in bubblewrap's namespaces. Its own would be without the filter, and a cell could write
    into its memory."""
    syscalls.set_dumpable(False)
    child = os.fork()
    if child:
        watch(child)
    syscalls.set_dumpable(True)
    from . import runner

    runner.main(control, interrupt)
