"""Wrong lists."""

from common import reference, scalar

from mutate import Mutant
from mutate.restate import restated


def mutants(spec, names, candidate):
    right = reference(names, spec["expected"])
    if isinstance(right, str):
        yield from _texts(spec["marker"], right, candidate.answer)
        return
    right = [scalar(v) for v in (list(right) if isinstance(right, (list, tuple, set)) else [right])]
    marker = spec["marker"]
    lists = {
        "first dropped": right[1:], "last dropped": right[:-1], "one twice": right + right[-1:],
        "one more": [*right, "other" if isinstance(right[0], str) else 987654.5],
        "one changed": [_other(right[0]), *right[1:]], "last changed": [*right[:-1], _other(right[-1])],
        "all changed": [_other(v) for v in right], "first only": right[:1] if len(right) > 1 else [],
    }  # fmt: skip
    if spec.get("ordered") and right != right[::-1]:
        lists["reversed"] = right[::-1]
        lists["rotated"] = right[1:] + right[:1] if len(set(map(str, right))) > 1 else []
    for name, values in lists.items():
        yield Mutant(name, answer=restated(candidate.answer, marker, ", ".join(map(str, values))))
    yield Mutant("label missing", answer=restated(candidate.answer, marker, None))
    yield Mutant("words only", answer=restated(candidate.answer, marker, "see the file above"))


def _texts(marker, right, answer):
    """Other texts than the one expected."""
    texts = {
        "changed": _other(right), "last character lost": right[:-1], "not": f"not {right}", "undecided": f"{right} or {_other(right)}",
        "first word": right.split()[0] if " " in right else f"{right} {right}", "a number": "42", "words only": "see the file above",
        "empty": "", "label missing": None,
    }  # fmt: skip
    for name, text in texts.items():
        yield Mutant(name, answer=restated(answer, marker, text))


def _other(value):
    if isinstance(value, str):
        return value + "x" if not value.isdigit() else str(int(value) + 1)
    return value * 1.5 + 1
