"""What the stand-ins of engines share: a container made with bubblewrap, without any limit. What they do
not understand they refuse, so that nothing is taken for granted that no engine was told."""

import os
import sys

STATE = os.path.dirname(os.path.abspath(sys.argv[0]))  # where the test has put a link to the stand-in


def refuse(text):
    sys.exit(f"{os.path.basename(sys.argv[0])} (a stand-in): {text}")


def become(user, group):
    """As an engine's daemon would: only root can."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)


def contain(root, mounts, variables, folder, user, group, command):
    """Never returns. `mounts` are (kind, source or size, target)."""
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--as-pid-1", "--clearenv", "--hostname", "sandbox"]
    words += ["--uid", str(user), "--gid", str(group), "--ro-bind", root, "/"]
    words += ["--proc", "/proc", "--dev", "/dev"]
    for kind, source, target in sorted(mounts, key=lambda mount: mount[2].count("/")):
        if kind == "tmpfs":
            words += ["--perms", "1777", "--size", str(source), "--tmpfs", target]
        else:
            words += ["--bind" if kind == "rw" else "--ro-bind", source, target]
    for name, value in variables:
        words += ["--setenv", name, value]
    words += ["--chdir", folder, "--", *command]
    become(user, group)
    os.execvp("bwrap", words)
