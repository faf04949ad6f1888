"""calls: functions of a program, called in a sandbox without reference and checker, return what the reference says."""

import ast

from common import Fail, Mismatch, OursError, reference, short
from function_tests import matches


def check(spec, names, candidate):
    tests = reference(names, spec["expected"])
    if not isinstance(tests, list) or not tests:
        raise OursError(f"the reference's `{spec['expected']}` is no list of tests")
    candidate.text(spec["path"])
    found = candidate.calls.get(spec["path"]) if isinstance(candidate.calls, dict) else None
    if not isinstance(found, list) or len(found) != len(tests):
        raise Fail(f"{spec['path']}: no results came back")
    for i, (test, result) in enumerate(zip(tests, found)):
        _test(f"{spec['path']}, test {i + 1} ({short(test['calls'][0], 60)})", test, result)


def _test(what, test, result):
    if not isinstance(result, dict) or result.get("timed_out"):
        raise Fail(f"{what}: did not end in time")
    values = _values(what, test, result.get("results"))
    scope = {"matches": matches}
    exec(test["imports"], scope)
    scope |= {f"_{n}": value for n, value in enumerate(values)}
    try:
        holds = eval(test["holds"], scope)
    except Exception as error:
        raise Fail(f"{what}: the result {short(values[0])} cannot be compared: {type(error).__name__}: {error}") from None
    if not holds:
        raise Mismatch(what, short(test["shown"]), short(values[0] if len(values) == 1 else values))


def _values(what, test, results):
    """The results as data."""
    results = results if isinstance(results, list) else []
    for one in results:
        if not isinstance(one, dict) or not isinstance(one.get("value"), str):
            raise Fail(f"{what}: {short(str(one.get('error') if isinstance(one, dict) else one), 200)}")
    if len(results) != len(test["calls"]):
        raise Fail(f"{what}: {len(results)} results for {len(test['calls'])} calls")
    try:
        return [ast.literal_eval(one["value"]) for one in results]
    except (ValueError, SyntaxError, TypeError) as error:
        raise Fail(f"{what}: the result is no literal: {error}") from None
