"""values: a list or a text stated in the final message equals the reference."""

import re

from answers import MARKS, accurate, listed, numbers, stated, unmarked
from common import Mismatch, OursError, numeric, reference, scalar, short, text_form


def check(spec, names, candidate):
    expected = reference(names, spec["expected"])
    if isinstance(expected, str):
        return _text(spec, expected, candidate.answer)
    expected = [scalar(v) for v in (list(expected) if isinstance(expected, (list, tuple, set)) else [expected])]
    found = listed(candidate.answer, spec["marker"])
    if any("," in str(v) for v in expected if isinstance(v, str)):
        raise OursError(f"a value with a comma cannot be listed: {short(expected)}")
    if len(found) != len(expected):
        raise Mismatch(f"`{spec['marker']}`", f"{len(expected)} values", f"{len(found)}: {short(found)}")
    rest = list(found)
    for i, want in enumerate(expected):
        choices = range(1) if spec.get("ordered") else range(len(rest))
        at = next((j for j in choices if _same(rest[j], want, spec)), None)
        if at is None:
            raise Mismatch(f"`{spec['marker']}`: value {i + 1}", short(want), short(found))
        rest.pop(at)


def _text(spec, expected, answer):
    """One text, which may hold commas."""
    found, wanted = stated(answer, spec["marker"]), unmarked(expected).strip(MARKS)
    forms = (found, found.strip("'\"“”‘’[]()。"), found.rstrip("."))
    if not any(_same(form, wanted, spec) for form in forms):
        raise Mismatch(f"`{spec['marker']}`", short(expected), short(found))


def _same(found, want, spec):
    if isinstance(want, (int, float)) and not isinstance(want, bool):
        read = numbers(found)
        return len(read) == 1 and any(accurate(v, float(want), spec) for v in (read[0][0], *([read[0][0] / 100] if read[0][1] else [])))
    a, b = _folded(found), _folded(want)
    return a == b or (numeric(a) is not None and numeric(a) == numeric(b))


def _folded(text):
    """Text as it is compared: no case, one space, sizes as `3x4`."""
    text = " ".join(text_form(text).casefold().split())
    size = re.fullmatch(r"(\d+) ?[x×*] ?(\d+)(?: ?(?:px|pixels|像素))?", text)
    return f"{size[1]}x{size[2]}" if size else text
