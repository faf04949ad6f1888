"""values: a list stated in the final message equals the reference."""

from answers import listed, numbers
from common import Fail, close, numeric, reference, scalar, short, text_form


def check(spec, names, candidate):
    expected = reference(names, spec["expected"])
    expected = [scalar(v) for v in (list(expected) if isinstance(expected, (list, tuple, set)) else [expected])]
    found = listed(candidate.answer, spec["marker"])
    if any("," in str(v) for v in expected if isinstance(v, str)):
        raise_for_commas(expected)
    if len(found) != len(expected):
        raise Fail(f"`{spec['marker']}`: {len(expected)} values expected, found {len(found)}: {short(found)}")
    rest = list(found)
    for i, want in enumerate(expected):
        choices = range(1) if spec.get("ordered") else range(len(rest))
        at = next((j for j in choices if _same(rest[j], want, spec["rtol"])), None)
        if at is None:
            raise Fail(f"`{spec['marker']}`: value {i + 1} should be {short(want)}, found {short(found)}")
        rest.pop(at)


def raise_for_commas(expected):
    from common import OursError

    raise OursError(f"a value with a comma cannot be listed: {short(expected)}")


def _same(found, want, rtol):
    if isinstance(want, (int, float)) and not isinstance(want, bool):
        read = numbers(found)
        return len(read) == 1 and any(close(v, float(want), rtol) for v in (read[0][0], *([read[0][0] / 100] if read[0][1] else [])))
    a, b = text_form(found).casefold(), text_form(want).casefold()
    return " ".join(a.split()) == " ".join(b.split()) or (numeric(a) is not None and numeric(a) == numeric(b))
