"""Scores what an agent left in /app: reward 1 where every check of the task holds, else 0.

    task.json, data/, held_out/, checker/   the task: checks and reference, pristine inputs, the checker
    /app/output/…                           what the agent saved
    /app/answer.txt                         its answer
    /app/.charts.jsonl                      what its charts were noted to show; claims

Writes reward.txt and findings.json to /logs/verifier. Where the task itself is at fault no reward is written and
the exit status is 1, so that a fault of ours is never the agent's. Standard library only; the checker it runs
needs the packages of the image.
"""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
APP = os.environ.get("PYBENCH_APP", "/app")
LOGS = os.environ.get("PYBENCH_LOGS", "/logs/verifier")

MAX_FILES = 1000
MAX_BYTES = 1 << 30
MAX_DEPTH = 16
MAX_ANSWER = 1 << 20
MAX_CLAIMS = 64 << 20
MAX_RESULT = 32 << 20
NOBODY = 65534

CHECK = "import sys; sys.path.insert(0, 'checker'); import checker; checker.main()"
FOREIGN = "import sys; sys.path.insert(0, 'foreign'); import {0}; {0}.main()"


class TaskFault(Exception):
    """No verdict on the agent."""


def opened(path, folder=None):
    """A regular file that is no link, for reading; None where there is none."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(number).st_mode):
        return os.fdopen(number, "rb")
    os.close(number)
    return None


def collect(root, target):
    """Copy regular files, within bounds, following no link: others may be changing the folder."""
    files, left = 0, MAX_BYTES
    for folder, folders, names, number in walk(root):
        below = os.path.relpath(folder, root)
        if below.count(os.sep) >= MAX_DEPTH:
            folders.clear()
        for name in sorted(names):
            file = opened(name, number)
            if file is None:
                continue
            with file:
                size = os.fstat(file.fileno()).st_size
                files, left = files + 1, left - size
                if files > MAX_FILES or left < 0:
                    return
                place = os.path.join(target, below)
                os.makedirs(place, exist_ok=True)
                with open(os.path.join(place, name), "wb") as copy:
                    while size > 0 and (piece := file.read(min(size, 1 << 20))):
                        size -= len(piece)
                        copy.write(piece)


def walk(root):
    """Folders below a folder, as they are found; nothing where it is none."""
    try:
        yield from os.fwalk(root, follow_symlinks=False)
    except OSError:
        return


def text(name, most):
    """The beginning of a file of the workspace."""
    file = opened(os.path.join(APP, name))
    if file is None:
        return ""
    with file:
        return file.read(most).decode("utf-8", "replace")


def claims():
    """What charts were noted to show, the last of them."""
    found = []
    for line in text(".charts.jsonl", MAX_CLAIMS).splitlines():
        try:
            claim = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(claim, dict) and isinstance(claim.get("path"), (str, type(None))) and "figure" in claim:
            found.append(claim)
    return found[-500:]


def run(code, folder, seconds, **identity):
    """Python in a folder, in a clean environment; all it started is ended with it."""
    home = os.path.join(folder, ".home")
    os.makedirs(home, exist_ok=True)
    if identity:
        os.chown(home, NOBODY, NOBODY)
    env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": home, "MPLCONFIGDIR": home, "MPLBACKEND": "Agg"}
    env |= {"LANG": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-P", "-s", "-c", code]
    process = subprocess.Popen(command, cwd=folder, env=env, start_new_session=True, **identity)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def workspace(root, task):
    """The folder that the checker expects."""
    for name in ("data", "held_out", "checker"):
        if os.path.isdir(os.path.join(HERE, name)):
            shutil.copytree(os.path.join(HERE, name), os.path.join(root, name))
    candidate = os.path.join(root, "candidate")
    os.makedirs(os.path.join(candidate, "output"))
    collect(os.path.join(APP, "output"), os.path.join(candidate, "output"))
    write(os.path.join(candidate, "answer.txt"), text("answer.txt", MAX_ANSWER))
    write(os.path.join(candidate, "claims.json"), json.dumps(claims()))
    write(os.path.join(root, "task.json"), json.dumps(task))


def write(path, content):
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)


def checker(root, task, mode, seconds):
    """One run of the checker: its result."""
    write(os.path.join(root, "task.json"), json.dumps({**task, "mode": mode}))
    result = os.path.join(root, "output", "result.json")
    run(CHECK, root, seconds)
    try:
        with open(result, encoding="utf-8") as file:
            found = json.load(file)
        os.remove(result)
    except (OSError, ValueError) as error:
        raise TaskFault(f"the checker came to no result: {error}") from None
    if "error" in found:
        raise TaskFault(found["error"])
    return found


def foreign(root, script, given, result):
    """Run what the agent made (a program, a pickle) as nobody, where neither reference nor checker can be read."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        for name in ("data", os.path.join("candidate", "output")):
            if os.path.isdir(os.path.join(root, name)):
                shutil.copytree(os.path.join(root, name), os.path.join(folder, name))
        os.makedirs(os.path.join(folder, "foreign"))
        os.makedirs(os.path.join(folder, "inputs"))
        os.makedirs(os.path.join(folder, "output"))
        shutil.copy(os.path.join(HERE, "checker", "foreign", script + ".py"), os.path.join(folder, "foreign"))
        for path, content in given.items():
            write(os.path.join(folder, path), content)
        identity = {}
        if os.geteuid() == 0:
            os.chown(os.path.join(folder, "output"), NOBODY, NOBODY)
            identity = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        run(FOREIGN.format(script), folder, 300, **identity)
        file = opened(os.path.join(folder, "output", result))
        if file is not None:
            with file:
                data = file.read(MAX_RESULT + 1)
            if len(data) <= MAX_RESULT:
                write(os.path.join(root, "candidate", result), data.decode("utf-8", "replace"))


def run_foreign(root, task):
    """Programs and models, where a check asks for one."""
    asks = any(c["check"] in ("model", "program", "calls") or c.get("held_out") for c in task["checks"])
    inputs = checker(root, task, "prepare", 300) if asks else {}
    if inputs.get("programs"):
        foreign(root, "run_program", {"programs.json": json.dumps(inputs["programs"])}, "runs.json")
    if inputs.get("calls"):
        foreign(root, "run_calls", {"calls.json": json.dumps(inputs["calls"])}, "calls.json")
    if inputs.get("models"):
        given = {f"inputs/{n}.csv": table for n, table in enumerate(inputs["models"].values())}
        names = {path: f"inputs/{n}.csv" for n, path in enumerate(inputs["models"])}
        foreign(root, "run_model", {**given, "models.json": json.dumps(names)}, "predictions.json")


def main():
    os.umask(0o022)
    if os.geteuid() == 0:
        # Programs of the agent run below, as another user: the reference is not theirs to read.
        os.chmod(HERE, 0o700)
    with open(os.path.join(HERE, "task.json"), encoding="utf-8") as file:
        task = json.load(file)
    os.makedirs(LOGS, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory() as root:
            workspace(root, task)
            run_foreign(root, task)
            findings = checker(root, task, "check", 700)["findings"]
    except TaskFault as fault:
        print(f"the task is at fault, there is no verdict: {fault}", file=sys.stderr)
        return 1
    for finding in findings:
        print(f"{finding['outcome']:8}  {finding['filter']} {finding['subject']}: {finding['detail']}")
    passed = bool(findings) and all(finding["outcome"] == "pass" for finding in findings)
    write(os.path.join(LOGS, "findings.json"), json.dumps(findings, indent=1))
    write(os.path.join(LOGS, "reward.txt"), "1\n" if passed else "0\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
