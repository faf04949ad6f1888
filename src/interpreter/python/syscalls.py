"""The system calls that make jails, for which Python has no functions, by the C library's names."""

import ctypes
import errno
import os

_libc = ctypes.CDLL(None, use_errno=True)

NEW_NAMESPACES = 0x10000000 | 0x20000 | 0x20000000 | 0x40000000 | 0x8000000 | 0x4000000  # user mnt pid net ipc uts
NEW_USER, NEW_CGROUP = 0x10000000, 0x2000000

RDONLY, NOSUID, NODEV, NOEXEC = 1, 2, 4, 8  # as mount flags and as attributes
_BIND, _REC, _DETACH, _PRIVATE, _SLAVE = 4096, 16384, 2, 1 << 18, 1 << 19
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_SETATTR = -100, 0x8000, 442  # one number on all processors

_PDEATHSIG, _DUMPABLE, _SECCOMP, _CAPBSET_DROP = 1, 4, 22, 24
_CHILD_SUBREAPER, _NO_NEW_PRIVS, _CAP_AMBIENT = 36, 38, 47
_CAPABILITY_VERSION = 0x20080522
_NO_RANDOMIZE = 0x0040000


def _call(what, function, *arguments):
    if function(*arguments) == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def _text(value):
    return None if value is None else os.fsencode(value)


def unshare(flags):
    _call("unshare", _libc.unshare, ctypes.c_int(flags))


def mount(kind, target, flags=0, data=None):
    arguments = (_text(kind), _text(target), _text(kind), ctypes.c_ulong(flags), _text(data))
    _call(f"mounting {kind} on {target}", _libc.mount, *arguments)


def bind(source, target):
    """Show `source` and what is mounted below it at `target`, too."""
    arguments = (_text(source), _text(target), None, ctypes.c_ulong(_BIND | _REC), None)
    _call(f"binding {source} to {target}", _libc.mount, *arguments)


def propagate(private):
    """Whether mounts made outside later come in."""
    flags = ctypes.c_ulong(_REC | (_PRIVATE if private else _SLAVE))
    _call("mount propagation", _libc.mount, None, b"/", None, flags, None)


def restrict(target, attributes, recursive=True):
    """Add attributes (`RDONLY`, …) to the mount there."""
    wanted = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = ctypes.c_uint(_AT_RECURSIVE if recursive else 0)
    arguments = (ctypes.c_long(_AT_FDCWD), _text(target), flags, wanted, ctypes.c_size_t(32))
    _call(f"restricting {target}", _libc.syscall, ctypes.c_long(_MOUNT_SETATTR), *arguments)


def pivot_root(new, old):
    _call("pivot_root", _libc.pivot_root, _text(new), _text(old))


def unmount(target):
    _call(f"unmounting {target}", _libc.umount2, _text(target), ctypes.c_int(_DETACH))


def _prctl(what, *arguments):
    values = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in arguments]
    _call(what, _libc.prctl, *values, *[ctypes.c_ulong(0)] * (5 - len(values)))


def prefer_as_victim(score):
    """Out of memory, the kernel takes the processes with the highest score."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(score))
    except PermissionError:
        pass  # it is higher already, and may not be lowered


def die_with_parent():
    _prctl("PR_SET_PDEATHSIG", _PDEATHSIG, 9)


def set_dumpable(value):
    _prctl("PR_SET_DUMPABLE", _DUMPABLE, int(value))


def adopt_orphans():
    """Become the parent of what is left below."""
    _prctl("PR_SET_CHILD_SUBREAPER", _CHILD_SUBREAPER, 1)


def equal_addresses():
    """Equal work at equal addresses after the next exec: `id()` and sets of objects repeat. Where it is
    refused they do not."""
    _libc.personality(ctypes.c_ulong(_NO_RANDOMIZE))


def use_huge_pages():
    """Gather the memory of this process in pages of 2 MiB, whose tables a fork copies in no time. Where the
    kernel cannot (before Linux 6.1), nothing changes."""
    huge, collapse = 1 << 21, 25  # MADV_COLLAPSE
    with open("/proc/self/maps") as file:
        lines = [line.split() for line in file]
    for addresses, access, _offset, _device, inode, *_name in lines:
        if access == "rw-p" and inode == "0":
            begin, end = (int(address, 16) for address in addresses.split("-"))
            begin, end = -(-begin // huge) * huge, end // huge * huge
            if begin < end:
                _libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), collapse)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def drop_privileges(program):
    """No capability, none to be had by running a program, and only the system calls that the filter
    allows."""
    for capability in range(64):
        try:
            _prctl("PR_CAPBSET_DROP", _CAPBSET_DROP, capability)
        except OSError:
            break  # beyond the last one
    try:
        _prctl("PR_CAP_AMBIENT", _CAP_AMBIENT, 4)  # clear all
    except OSError as error:
        if error.errno != errno.EINVAL:  # gVisor has none
            raise
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    _call("capset", _libc.capset, header, (ctypes.c_uint32 * 6)())
    _prctl("PR_SET_NO_NEW_PRIVS", _NO_NEW_PRIVS, 1)
    if program:
        filter = _Program(len(program) // 8, program)
        _prctl("PR_SET_SECCOMP", _SECCOMP, 2, ctypes.byref(filter))
