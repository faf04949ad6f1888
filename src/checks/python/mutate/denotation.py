"""Other sets of values than the expected one."""

from common import numeric, reference, scalar

from mutate import Mutant
from mutate.restate import restated


def mutants(spec, names, candidate):
    pairs = [item if isinstance(item, (list, tuple)) else (item, None) for item in reference(names, spec["expected"])]
    right = [str(scalar(text)) for text, _ in pairs]
    first, rest = right[0], right[1:]
    sets = {
        "one more": [*right, "something else"], "a letter more": [f"{first}x", *rest], "other words around it": [f"not {first}", *rest],
        "two candidates": [f"{first} or something else", *rest], "details invented": [f"{first} (or something else)", *rest],
        "other": ["something else", *rest], "a number": ["987654321", *rest], "empty": [""], "first dropped": rest or ["none"],
    }  # fmt: skip
    number = numeric(first.replace(",", ""))
    if number is not None:
        sets["plus one"] = [str(number + 1), *rest]
    for name, values in sets.items():
        yield Mutant(name, answer=restated(candidate.answer, spec["marker"], " | ".join(values)))
    yield Mutant("label missing", answer=restated(candidate.answer, spec["marker"], None))
