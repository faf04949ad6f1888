"""number: a number stated in the final message equals the reference."""

from answers import accurate, one_number
from common import Mismatch, OursError, numeric, reference, scalar


def check(spec, names, candidate):
    expected = numeric(scalar(reference(names, spec["expected"])))
    if expected is None:
        raise OursError(f"the reference's `{spec['expected']}` is no number")
    stated = one_number(candidate.answer, spec["marker"])
    if not any(accurate(value, expected, spec) for value in stated):
        raise Mismatch(f"`{spec['marker']}`", f"{expected:.10g}", f"{stated[0]:.10g}")
