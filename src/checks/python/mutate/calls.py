"""Wrong programs: ones whose functions return something else, and ones that attack the comparison."""

import ast

from common import reference

from mutate import Mutant

CHANGES = {
    "returns nothing": "lambda *a, **k: None",
    "returns an object that equals everything": "lambda *a, **k: type('All', (), {'__eq__': lambda s, o: True, '__hash__': lambda s: 0, '__bool__': lambda s: True})()",
    "returns an int that equals everything": "lambda *a, **k: type('All', (int,), {'__eq__': lambda s, o: True, '__hash__': lambda s: 0})(1)",
    "returns its arguments": "lambda *a, **k: ('arguments', a, k)",
    "returns text": "lambda *a, **k: 'All tests passed'",
    "returns NaN": "lambda *a, **k: float('nan')",
    "ends the process": "lambda *a, **k: __import__('sys').exit(0)",
    "ends the process at once": "lambda *a, **k: __import__('os')._exit(0)",
    "raises": "lambda *a, **k: 1 / 0",
    "returns the result in a list": "lambda *a, _f={name}, **k: ['wrapped', _f(*a, **k)]",
}


def mutants(spec, names, candidate):
    path, tests = spec["path"], reference(names, spec["expected"])
    source = candidate.text(path)
    called = sorted({name for test in tests for call in test["calls"] for name in _names(call)})
    yield Mutant("broken", {path: source.encode() + b"\n)("})
    yield Mutant("ends", {path: b"import sys\nsys.exit(0)\n"})
    yield Mutant("prints what is expected", {path: "\n".join(f"print({test['shown']!r})" for test in tests).encode()})
    for what, change in CHANGES.items():
        changed = "".join(f"{name} = {change.replace('{name}', name)}\n" for name in called if f"{name}" in source)
        yield Mutant(what, {path: f"{source}\n{changed}".encode()})


def _names(call):
    """Names that a call calls."""
    nodes = ast.walk(ast.parse(call))
    return [node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
