"""json: a JSON file equals the reference value."""

from common import Fail, Mismatch, close, reference, scalar, short, strict_json

MAX_DEPTH = 200


def check(spec, names, candidate):
    expected = reference(names, spec["expected"])
    try:
        found = strict_json(candidate.text(spec["path"]))
    except (ValueError, RecursionError) as error:
        raise Fail(f"{spec['path']} is no JSON: {error}") from None
    _compare(found, expected, (spec["rtol"], spec.get("atol", 0.0)), "$", 0)


def _compare(found, want, tolerance, at, depth):
    if depth > MAX_DEPTH:
        raise Fail(f"{at} is nested too deeply")
    if isinstance(want, dict):
        _compare_object(found, want, tolerance, at, depth)
    elif isinstance(want, (list, tuple)):
        if not isinstance(found, list) or len(found) != len(want):
            raise Mismatch(at, f"a list of {len(want)}", short(found))
        for i, (a, b) in enumerate(zip(found, want)):
            _compare(a, b, tolerance, f"{at}[{i}]", depth + 1)
    elif not _same(found, scalar(want), tolerance):
        raise Mismatch(at, short(want), short(found))


def _compare_object(found, want, tolerance, at, depth):
    want = {str(key): value for key, value in want.items()}
    if not isinstance(found, dict):
        raise Mismatch(at, "an object", short(found))
    if found.keys() != want.keys():
        raise Mismatch(at, f"keys {short(sorted(want))}", short(sorted(found)))
    for key in want:
        _compare(found[key], want[key], tolerance, f"{at}.{key}"[:200], depth + 1)


def _same(found, want, tolerance):
    if isinstance(want, bool) or isinstance(found, bool) or want is None or found is None:
        return found is want or (found is None and want is None)
    if isinstance(want, (int, float)):
        return isinstance(found, (int, float)) and close(float(found), float(want), *tolerance)
    return isinstance(found, str) and found == want
