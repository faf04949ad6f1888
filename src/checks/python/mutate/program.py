"""Wrong programs: constant ones, and ones that spoil the output of the right one."""

from checks.text import lines
from common import reference

from mutate import Mutant

WRAPPED = """import io, re, contextlib
out = io.StringIO()
try:
    with contextlib.redirect_stdout(out):
        exec(compile({source!r}, "program.py", "exec"), {{"__name__": "__main__"}})
except SystemExit:
    pass
text = out.getvalue()
{change}
print(text, end="")
"""
CHANGES = {
    "numbers off by one": r're.sub(r"\d+", lambda m: str(int(m[0]) + 1), text)',
    "last line lost": '"\\n".join(text.rstrip().split("\\n")[:-1])',
    "case changed": "text.swapcase()",
    "reversed": "text[::-1]",
    "half of it": "text[: len(text) // 2]",
    "lines reversed": '"\\n".join(text.rstrip().split("\\n")[::-1])',
    "first character lost": "text.lstrip()[1:]",
    "written to nowhere": '""',
}


def mutants(spec, names, candidate):
    path, runs = spec["path"], reference(names, spec["expected"])
    source = candidate.text(path)
    wanted = ["\n".join(lines(run["stdout"])) for run in runs]
    if len(set(wanted)) > 1:
        yield Mutant("constant output", {path: f"print({wanted[0]!r})\n".encode()})
    yield Mutant("prints nothing", {path: b"pass\n"})
    if any(run.get("stdin", "").strip() != want.strip() for run, want in zip(runs, wanted)):
        yield Mutant("prints its input", {path: b"import sys\nprint(sys.stdin.read(), end='')\n"})
    if spec.get("standard_library"):
        yield Mutant("imports numpy", {path: b"import numpy\n" + source.encode()})
    yield Mutant("broken", {path: source.encode() + b"\n)("})
    yield Mutant("raises", {path: source.encode() + b"\nraise SystemExit(3)\n"})
    yield Mutant("prints its source", {path: b"print(open(__file__).read())\n"})
    yield Mutant("says that it works", {path: b"print('All tests passed')\n"})
    for name, change in CHANGES.items():
        changed = [_changed(name, want, change) for want in wanted]
        if any(_wrong(new, want, spec.get("contains")) for new, want in zip(changed, wanted)):
            yield Mutant(name, {path: WRAPPED.format(source=source, change=f"text = {change}").encode()})


def _changed(name, text, change):
    import re

    return eval(change, {"text": text + "\n", "re": re})  # our own expressions, see CHANGES


def _wrong(new, want, contains):
    new = "\n".join(lines(new))
    return want not in new if contains else new != want
