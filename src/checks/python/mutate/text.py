"""Wrong texts."""

from checks.text import lines
from common import reference

from mutate import Mutant


def mutants(spec, names, candidate):
    right = lines(reference(names, spec["expected"]))
    text = "\n".join(right)
    words = text.split(" ")
    middle = len(right) // 2
    changed = {
        "last line dropped": right[:-1], "first line dropped": right[1:], "middle line dropped": right[:middle] + right[middle + 1 :],
        "lines reversed": right[::-1], "a line twice": right + right[-1:], "extra line": ["Here is the result:", *right],
        "words swapped": " ".join(words[1:2] + words[:1] + words[2:]).split("\n"),
        "truncated": text[: len(text) // 2].split("\n"), "case changed": text.swapcase().split("\n"),
        "last character lost": text[:-1].split("\n"), "one character changed": ("~" + text[1:]).split("\n"),
        "written twice": right + right, "no spaces": text.replace(" ", "").split("\n"),
    }  # fmt: skip
    for name, new in changed.items():
        new = "\n".join(new) + "\n"
        if lines(new) != right:
            yield Mutant(name, {spec["path"]: new.encode()})
    yield Mutant("blank", {spec["path"]: b"\n\n"})
