"""program: a program, run in a sandbox without reference or checker, reacts as the reference says."""

import ast
import sys

from common import Fail, Mismatch, OursError, reference, short

from checks.text import lines


def check(spec, names, candidate):
    expected = reference(names, spec["expected"])
    if not isinstance(expected, list) or not expected:
        raise OursError(f"the reference's `{spec['expected']}` is no list of runs")
    source = candidate.text(spec["path"])
    if spec.get("standard_library") and (foreign := _foreign_imports(source, spec["path"])):
        raise Fail(f"{spec['path']}: imports {short(foreign)}, which is not in the standard library")
    runs = (candidate.runs or {}).get(spec["path"])
    if not isinstance(runs, list) or len(runs) != len(expected):
        raise Fail(f"{spec['path']}: no outputs came back")
    for i, (run, want) in enumerate(zip(runs, expected)):
        _run(spec, i, run, want)


def _foreign_imports(source, path):
    """The modules that a program imports from outside the standard library."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError) as error:
        raise Fail(f"{path} is no Python program: {error}") from None
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return sorted({name.split(".")[0] for name in names} - sys.stdlib_module_names)


def _run(spec, i, run, want):
    what = f"{spec['path']}, run {i + 1} (stdin {short(want.get('stdin', ''), 40)}, args {short(want.get('args', []), 40)})"
    if run.get("timed_out"):
        raise Fail(f"{what}: did not end in time")
    if run.get("exit", 0) != want.get("exit", 0):
        raise Fail(f"{what}: exit code {run.get('exit')}, {short(run.get('stderr', ''))}")
    found, wanted = lines(str(run.get("stdout", ""))), lines(want["stdout"])
    if spec.get("contains"):
        holds = "\n".join(wanted).strip() in "\n".join(found)
    else:
        holds = found == wanted
    if not holds:
        raise Mismatch(what, short(want["stdout"]), short(run.get("stdout", "")))
