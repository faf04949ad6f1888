"""property: a function of the reference holds of the candidate (see `judge`)."""

from common import OursError, reference
from judge import Work


def check(spec, names, candidate):
    holds = reference(names, spec["holds"])
    if not callable(holds):
        raise OursError(f"the reference's `{spec['holds']}` is no function")
    holds(Work(candidate))
