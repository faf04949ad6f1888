"""Other answers than the expected one."""

from common import reference, scalar

from mutate import Mutant
from mutate.restate import restated


def mutants(spec, names, candidate):
    marker, right = spec["marker"], str(scalar(reference(names, spec["expected"])))
    answers = {
        "plus one": f"({right}) + 1", "a little more": f"({right}) + 0.0001", "two candidates": f"{right} or 987", "twice": f"{right}, {right}",
        "one more": f"{right}, 987", "doubtful": f"not {right}", "a number": "987654.5", "empty": "", "words only": "see above",
        "a function of it": f"\\sqrt{{({right})^2 + 7}}", "label missing": None,
    }  # fmt: skip
    for name, text in answers.items():
        yield Mutant(name, answer=restated(candidate.answer, marker, text))
    yield Mutant("corrected wrongly", answer=f"{candidate.answer}\n{marker}: 987654.5")
