"""denotation: the set of values stated in the final message equals the reference's, as WikiTableQuestions defines it.

A value is a text, a number or a date. Texts are compared without case, diacritics, citations and bracketed details at
their end; numbers within 1e-6; dates by their known parts. Beyond upstream's definition, each expected value needs a
value of its own, and bracketed details count only if the expected value or a file of the task has them.
"""

import os
import re
import unicodedata

from answers import stated
from common import MAX_TEXT, Fail, Mismatch, OursError, reference, scalar, short

TOLERANCE = 1e-6
MAX_VALUES = 1000
PLAIN = str.maketrans("‘’´`“”‐‑‒–—−", "''''\"\"------")


def check(spec, names, candidate):
    pairs = [_pair(item) for item in _listed(reference(names, spec["expected"]), spec)]
    wanted = unique([value(text, canon) for text, canon in pairs])
    texts = [text.strip() for text in stated(candidate.answer, spec["marker"]).split("|")]
    if len(texts) > MAX_VALUES:
        raise Fail(f"`{spec['marker']}`: more than {MAX_VALUES} values")
    found = unique([value(text) for text in texts])
    shown = (f"`{spec['marker']}`", short(" | ".join(text for text, _ in pairs)), short(" | ".join(texts)))
    if len(found) != len(wanted) or not one_to_one(wanted, found):
        raise Mismatch(*shown)
    known = {normalize(text, True) for text, _ in pairs}
    for text in texts:
        kept = normalize(text, True)
        if kept != normalize(text) and kept not in known and not _in_files(text):
            raise Fail(f"`{spec['marker']}`: neither the expected value nor a file has the details of {short(text)}")


def _listed(expected, spec):
    if not isinstance(expected, (list, tuple)) or not expected:
        raise OursError(f"the reference's `{spec['expected']}` is no list of values")
    return expected


def _pair(item):
    """The text of an expected value and its canonical form."""
    if isinstance(item, (list, tuple)):
        if len(item) != 2:
            raise OursError(f"{short(item)} is no pair of a text and its canonical form")
        return str(item[0]), str(item[1])
    return str(scalar(item)), None


def _in_files(text):
    """Whether a file of the task holds this text."""
    for name in sorted(os.listdir("data")) if os.path.isdir("data") else []:
        with open(os.path.join("data", name), "rb") as file:
            if text.replace('"', '""').encode() in file.read(MAX_TEXT):
                return True
    return False


def value(text, canon=None):
    """(what it is, normalized text): `canon` is the machine-readable form, where it is known."""
    text = str(text)
    canon = text if canon is None or canon == "" else canon
    kind = _number(canon) or _date(canon)
    return kind or ("text", normalize(text)), normalize(text)


def unique(values):
    """The values of a set: of equal ones the first."""
    out = {}
    for kind, text in values:
        out.setdefault(kind, (kind, text))
    return list(out.values())


def matches(want, found):
    (kind, text), (other, stated_text) = want, found
    if text == stated_text:
        return True
    if kind[0] == other[0] == "float":
        return abs(kind[1] - other[1]) < TOLERANCE
    return kind[0] != "text" and kind == other


def one_to_one(wanted, found):
    """Whether each expected value is matched by a value of its own."""
    owners = {}

    def assign(at, visited):
        for i, one in enumerate(found):
            if i not in visited and matches(wanted[at], one):
                visited.add(i)
                if i not in owners or assign(owners[i], visited):
                    owners[i] = at
                    return True
        return False

    return all(assign(at, set()) for at in range(len(wanted)))


def _number(text):
    text = text.strip()
    if re.fullmatch(r"[+-]?[0-9]+", text):
        digits = text.lstrip("+-").lstrip("0")
        return "integer", ("-" if text.startswith("-") and digits else "") + (digits or "0")
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", text):
        return None
    amount = float(text)
    if amount in (float("inf"), float("-inf")):
        return None
    if abs(amount - round(amount)) < TOLERANCE:
        return "integer", str(int(amount))
    return "float", amount


def _date(text):
    """`yyyy-mm-dd`, with `xx` for unknown parts. A year alone is a number."""
    parts = text.lower().split("-")
    if len(parts) != 3:
        return None
    year, month, day = parts
    known = year not in ("xx", "xxxx")
    if (known and not re.fullmatch(r"[0-9]+", year)) or not all(part == "xx" or re.fullmatch(r"[0-9]{1,2}", part) for part in (month, day)):
        return None
    month, day = (None if part == "xx" else int(part) for part in (month, day))
    if (month is not None and not 1 <= month <= 12) or (day is not None and not 1 <= day <= 31):
        return None
    year = year.lstrip("0") or "0" if known else None
    if month is None and day is None:
        return ("integer", year) if known else None
    return "date", (year, month, day)


def normalize(text, details=False):
    """Upstream's normalization; with `details`, all its steps but the removal of citations and brackets."""
    text = "".join(c for c in unicodedata.normalize("NFKD", str(text)) if unicodedata.category(c) != "Mn").translate(PLAIN)
    while True:
        old, text = text, text.strip()
        if not details:
            text = _without_citations(text).strip()
            text = _cut(r"(?: \([^)]*\))*$", text).strip()
        if len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]:
            text = text[1:-1]
        if text == old:
            break
    return " ".join(text.removesuffix(".").split()).lower()


def _without_citations(text):
    if re.fullmatch(r"(?:\[[0-9]+\]|[•♦†‡*#+])(?:\[[^\]]*\]|[•♦†‡*#+])*", text):
        return ""
    return _cut(r"(?:\[[^\]]*\]|[•♦†‡*#+])*$", text)


def _cut(pattern, text):
    """Without what the pattern matches at the end, but never without the first character."""
    found = re.compile(pattern).search(text, 1) if text else None
    return text[: found.start()] if found else text
