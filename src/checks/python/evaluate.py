"""Runs the reference and evaluates checks, each in a child of its own.

A candidate that crashes a reader, or makes it run without end, fails; it never stops the checker.
"""

import contextlib
import importlib
import io
import json
import os
import resource
import select
import signal
import sys
import time

from common import AnyOf, Fail, OursError, StalledError, Unfit, Unproven

CPU_SECONDS = 60  # of one child
ALL_CPU_SECONDS = 120  # of all children of a candidate
WALL_SECONDS = 240  # of all children of a candidate
BUSY_SECONDS = 30  # of processor time: what used less within WALL_SECONDS was held up by the machine
MEMORY = 2 * 1024**3  # of address space beyond what the parent has
MAX_DETAIL = 500
KINDS = ("table", "number", "values", "denotation", "symbolic", "text", "json", "image", "frames", "audio", "qr", "pdf", "docx", "html", "plot", "model", "program", "calls", "property")  # fmt: skip

HEAVY = {
    ".xlsx": ("openpyxl",), ".parquet": ("pyarrow.parquet",), ".docx": ("docx",), ".pdf": ("pymupdf", "pypdf"),
    ".html": ("bs4", "lxml"), ".png": ("PIL.Image",), ".wav": ("soundfile", "scipy.fft"), ".mp3": ("soundfile", "scipy.fft"),
    ".flac": ("soundfile", "scipy.fft"), ".ogg": ("soundfile", "scipy.fft"),
}  # fmt: skip


def run_reference(source):
    """The names that the reference defines. Anything it raises but `Unfit` is an error of ours."""
    import ref

    names = {"ref": ref, "__name__": "reference"}
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            exec(compile(source, "reference.py", "exec"), names)
    except Unfit:
        raise
    except BaseException as error:
        line = _line(error)
        raise OursError(f"the reference raised {type(error).__name__}: {error}{line}") from error
    return names


def _line(error):
    trace, line = error.__traceback__, ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "reference.py":
            line = f" (line {trace.tb_lineno})"
        trace = trace.tb_next
    return line


def findings(task, names, candidate):
    """Findings of all outputs and checks."""
    preload(task)
    jobs = [("outputs", path, lambda path=path: sound(path, candidate)) for path in task["outputs"]]
    jobs += [("check", subject(spec), lambda spec=spec: run_check(spec, names, candidate)) for spec in task["checks"]]
    results = isolated([job for _, _, job in jobs])
    out = []
    for (kind, what, _), (outcome, detail, mismatch) in zip(jobs, results):
        if outcome == "ours":
            raise OursError(f"{what}: {detail}")
        finding = {"filter": kind, "subject": what[:200], "outcome": outcome, "detail": detail[:MAX_DETAIL]}
        if mismatch:
            finding["mismatch"] = {name: text[:MAX_DETAIL] for name, text in mismatch.items()}
        out.append(finding)
    return out


def preload(task):
    """Import what the children will need, once."""
    modules = ["checks." + spec["check"] for spec in task["checks"] if spec["check"] in KINDS]
    paths = [*task["outputs"], *(spec.get("path") or "" for spec in task["checks"])]
    modules += [m for path in paths for m in HEAVY.get(os.path.splitext(path)[1].lower(), ())]
    for module in dict.fromkeys(modules):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def subject(spec):
    """What a check looks at, in words."""
    return f"{spec['check']} {spec.get('path') or spec.get('marker') or spec.get('holds')}"


def run_check(spec, names, candidate):
    """Evaluate one check here. Raises Fail, Unproven or OursError."""
    if spec["check"] not in KINDS:
        raise OursError(f"unknown check `{spec['check']}`")
    failed = None
    for choice in alternatives(spec, names):
        try:
            return importlib.import_module("checks." + spec["check"]).check(spec, choice, candidate)
        except Fail as error:
            failed = failed or error
    raise failed


def alternatives(spec, names):
    """The reference's names once per alternative of what is expected (`ref.any_of`); the first is ours."""
    key = spec.get("expected") or spec.get("contains")
    value = names.get(key)
    return [{**names, key: one} for one in value.choices] if isinstance(value, AnyOf) else [names]


def sound(path, candidate):
    """The output exists, is not empty, and opens as what its name says."""
    import soundness

    soundness.check(path, candidate)


def isolated(jobs):
    """(outcome, detail, values of a mismatch) of each job. They run in a child with bounded time and memory; one
    that kills the child fails, and the next ones get a new child."""
    sys.stdout.flush()
    sys.stderr.flush()
    results, used, deadline = [], 0.0, time.monotonic() + WALL_SECONDS
    while len(results) < len(jobs):
        if used >= ALL_CPU_SECONDS:
            results.append(("fail", "the files before it took too much time", None))
            continue
        found, death, seconds = _in_child(jobs[len(results) :], deadline)
        used += seconds
        results += found
        if death is None:  # stopped at the deadline
            if used < BUSY_SECONDS:
                raise StalledError(f"the checks took more than {WALL_SECONDS} s, of which {used:.0f} s were processor time")
            death, used = "too much time", ALL_CPU_SECONDS
        if len(results) < len(jobs):
            results.append(("fail", f"reading it stopped the reader ({death})", None))
    return results


def _in_child(jobs, deadline):
    """Results of the jobs that a child finished, what ended it (None: the deadline), its processor seconds."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        _child(jobs, write)
    os.close(write)
    data, ended = _collect(read, deadline)
    if not ended:
        _kill(pid)
    _, status, usage = os.wait4(pid, 0)
    results = [tuple(json.loads(line)) for line in data.split(b"\n")[:-1]]
    return results, _death(status) if ended else None, usage.ru_utime + usage.ru_stime


def _kill(pid):
    """Kill a child and what it started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has no group of its own yet
        os.kill(pid, signal.SIGKILL)


def _child(jobs, write):
    try:
        _limit()
        for job in jobs:
            outcome, detail, mismatch = _judged(job)
            os.write(write, json.dumps([outcome, detail[:2000], mismatch]).encode() + b"\n")
    finally:
        os._exit(0)


def _judged(job):
    try:
        job()
    except Unproven as error:
        return "unproven", str(error), None
    except Fail as error:
        return "fail", str(error), getattr(error, "values", None)
    except OursError as error:
        return "ours", str(error), None
    except MemoryError:
        return "fail", "reading it takes too much memory", None
    except RecursionError:
        return "fail", "it is nested too deeply", None
    except Exception as error:
        return "fail", f"reading it raised {type(error).__name__}: {error}", None
    return "pass", "holds", None


def _limit():
    os.setpgid(0, 0)
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _lower(resource.RLIMIT_CPU, CPU_SECONDS + int(time.process_time()))
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    _lower(resource.RLIMIT_AS, now + MEMORY)


def _lower(which, limit):
    hard = resource.getrlimit(which)[1]
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(which, (limit, limit))


def _collect(read, deadline):
    """What the child writes, and whether it ended before the deadline."""
    data = b""
    with os.fdopen(read, "rb", buffering=0) as pipe:
        while True:
            ready, _, _ = select.select([pipe], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                return data, False
            piece = pipe.read(65536)
            if not piece:
                return data, True
            data += piece


def _death(status):
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "too much time" if number == signal.SIGXCPU else signal.Signals(number).name
    return "no result"
