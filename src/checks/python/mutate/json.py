"""Wrong JSON."""

import copy
import json
import math

from common import reference, scalar

from mutate import Mutant


def mutants(spec, names, candidate):
    right = _plain(reference(names, spec["expected"]))
    path, seen = spec["path"], set()
    for name, new in variants(right, spec["rtol"], spec.get("atol", 0.0)):
        text = json.dumps(new)
        if new != right and text not in seen:
            seen.add(text)
            yield Mutant(name, {path: text.encode()})
    yield Mutant("truncated", {path: json.dumps(right).encode()[:-1]})
    yield Mutant("as text", {path: json.dumps(json.dumps(right)).encode()})
    if (leaves := [at for at in _leaves(right, ()) if _is_number(_at(right, at))]) and isinstance(right, (dict, list)):
        yield Mutant("numbers as text", {path: json.dumps(_edit(right, leaves[0], str)).encode()})
        yield Mutant("NaN", {path: json.dumps(_edit(right, leaves[-1], lambda _: float("nan"))).encode()})
    yield Mutant("not JSON", {path: b"{'a': 1,}"})


def _plain(value):
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else scalar(value)


def variants(right, rtol, atol):
    yield "wrapped", {"result": right}
    yield "in a list", [right]
    yield "empty object", {}
    yield "null", None
    leaves = list(_leaves(right, ()))
    for where in [leaves[0], leaves[len(leaves) // 2], leaves[-1]] if leaves else []:
        yield f"changed at {where}", _edit(right, where, lambda v: _other(v, rtol, atol))
        yield f"null at {where}", _edit(right, where, lambda v: None if v is not None else 0)
        yield f"a list at {where}", _edit(right, where, lambda v: [v])
    for where in list(_inner(right, ()))[:4]:
        yield f"member dropped at {where}", _edit(right, where, _dropped)
        yield f"member added at {where}", _edit(right, where, lambda v: {**v, "extra": 1} if isinstance(v, dict) else [*v, 1])
        yield f"reversed at {where}", _edit(right, where, lambda v: v[::-1] if isinstance(v, list) else v)


def _dropped(value):
    return dict(list(value.items())[1:]) if isinstance(value, dict) else value[1:]


def _other(value, rtol, atol):
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, str):
        return value + "x"
    step = max(abs(value) * max(0.01, 3 * rtol), 3 * atol)
    return value + math.copysign(step, value) if step else 1


def _leaves(value, at):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*at, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _leaves(item, (*at, i))
    else:
        yield at


def _inner(value, at):
    if isinstance(value, (dict, list)) and value:
        yield at
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _inner(item, (*at, key))


def _at(value, where):
    for key in where:
        value = value[key]
    return value


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _edit(value, where, change):
    if not where:
        return change(value)
    value = copy.deepcopy(value)
    value[where[0]] = _edit(value[where[0]], where[1:], change)
    return value
