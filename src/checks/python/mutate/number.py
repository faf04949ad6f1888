"""Wrong numbers."""

from answers import accurate, half_unit
from common import numeric, reference, scalar

from mutate import Mutant
from mutate.restate import restated


def mutants(spec, names, candidate):
    marker, right = spec["marker"], numeric(scalar(reference(names, spec["expected"])))
    step, half = max(0.01, 3 * spec["rtol"]), half_unit(right, spec)
    changed = {
        "1 % more": right * (1 + step), "1 % less": right * (1 - step), "negated": -right, "one more": right + 1,
        "one less": right - 1, "rounded": float(round(right)), "tenfold": right * 10, "hundredfold": right * 100, "zero": 0.0,
        "three times as much": right * 3,
    }  # fmt: skip
    if half:
        changed |= {"less precise": right + 1.5 * half, "a digit short": round(right / (20 * half)) * 20 * half}
    for name, value in changed.items():
        if not accurate(float(f"{value:.10g}"), right, spec):
            yield Mutant(name, answer=restated(candidate.answer, marker, f"{value:.10g}"))
    yield Mutant("label missing", answer=restated(candidate.answer, marker, None))
    yield Mutant("guesses", answer=restated(candidate.answer, marker, f"{right:.10g} or {right + 1:.10g}"))
    yield Mutant("words only", answer=restated(candidate.answer, marker, "see above"))
    later = f"{candidate.answer}\n{marker}: {right + abs(right) + 1:.10g}"
    yield Mutant("corrected wrongly", answer=later)
