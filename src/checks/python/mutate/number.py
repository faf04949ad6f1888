"""Wrong numbers."""

from common import close, numeric, reference, scalar

from mutate import Mutant
from mutate.restate import restated


def mutants(spec, names, candidate):
    marker, right = spec["marker"], numeric(scalar(reference(names, spec["expected"])))
    step = max(0.01, 3 * spec["rtol"])
    changed = {
        "1 % more": right * (1 + step), "1 % less": right * (1 - step), "negated": -right, "one more": right + 1,
        "one less": right - 1, "rounded": float(round(right)), "tenfold": right * 10, "hundredfold": right * 100, "zero": 0.0,
        "three times as much": right * 3,
    }  # fmt: skip
    for name, value in changed.items():
        if not close(value, right, spec["rtol"], spec["atol"]):
            yield Mutant(name, answer=restated(candidate.answer, marker, f"{value:.10g}"))
    yield Mutant("label missing", answer=restated(candidate.answer, marker, None))
    yield Mutant("guesses", answer=restated(candidate.answer, marker, f"{right:.10g} or {right + 1:.10g}"))
    yield Mutant("words only", answer=restated(candidate.answer, marker, "see above"))
    later = f"{candidate.answer}\n{marker}: {right * 2 + 1:.10g}"
    yield Mutant("corrected wrongly", answer=later)
