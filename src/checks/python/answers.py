"""Reading values from the final message."""

import math
import re
import unicodedata

from common import Fail, close, short

MARKS = "*_`#> \t"
WRITTEN = re.compile(
    r"(?<![A-Za-z0-9_.])[-+−–]? ?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]*)?(?:[eE][-+−]?[0-9]{1,3})?"
    r"|(?<![A-Za-z0-9_.])[-+−–]?\.[0-9]+"
)

# What a number is a part of: "112.2 (of 255)".
WHOLE = re.compile(r"[(（]\s*(?:out of|of|von|共)\s[^()（）]*[)）]")

# A label that follows on the same line.
OTHER_LABEL = re.compile(r"[\s,;，；。]\s*[A-Za-z][A-Za-z0-9 ]{0,30}\s*[:：]")


def stated(answer, marker):
    """What follows the label on the last line that starts with it; if none does, where it stands last."""
    wanted, within = _folded(marker), _anywhere(marker)
    first = inside = None
    for line in answer[-20_000:].splitlines():
        line = unicodedata.normalize("NFC", line)
        line = unmarked(re.sub(r"^\s*(?:[-*•+]\s+|\d+[.)]\s+)?", "", line))
        label, colon, rest = re.match(r"^([^:：]*)([:：]?)(.*)$", line, re.S).groups()
        if colon and _folded(label) == wanted:
            first = rest
        elif _folded(line).startswith(wanted + ":"):  # a label may itself hold a colon
            first = re.split(r"[:：]", line, maxsplit=1 + len(re.findall("[:：]", marker)))[-1]
        elif found := list(within.finditer(line)):
            inside = line[found[-1].end() :]
    found = inside if first is None else first
    if found is None:
        raise Fail(f"the answer does not state `{marker}: …`")
    return within.split(found)[-1].strip().strip(MARKS)


def unmarked(text):
    """Text without Markdown's emphasis and code marks."""
    return text.replace("**", "").replace("__", "").replace("`", "")


def _anywhere(marker):
    """The label with its colon within a line."""
    words = r"\s+".join(map(re.escape, marker.split()))
    return re.compile(rf"(?<![A-Za-z0-9_'’]){words}\s*[:：]", re.IGNORECASE)


def _folded(text):
    return " ".join(unicodedata.normalize("NFKC", text).strip(MARKS).casefold().split())


def numbers(text):
    """Every number written in a text, with whether a percent sign follows."""
    found = []
    for match in WRITTEN.finditer(text):
        digits = match[0].replace(",", "").replace("−", "-").replace("–", "-").replace(" ", "")
        found.append((float(digits), text[match.end() : match.end() + 2].strip()[:1] in ("%", "％")))
    return found


def one_number(answer, marker):
    """The single number on the marked line: [(value)], as written and, with a percent sign, as a share."""
    line = OTHER_LABEL.split(stated(answer, marker))[0]
    found = numbers(WHOLE.sub("", line))
    if len(found) != 1:
        raise Fail(f"`{marker}:` is followed by {len(found)} numbers, one was expected: {short(line)}")
    value, percent = found[0]
    return [value, value / 100] if percent else [value]


def listed(answer, marker):
    """The comma-separated items on the marked line."""
    line = stated(answer, marker).strip("[](){}。")
    items = [item.strip().strip(MARKS).strip("'\"“”‘’") for item in re.split(r"[,，、;；]", line)]
    items = [item.rstrip(".") if re.fullmatch(r"[A-Za-z ]+\.", item) else item for item in items]
    return [item for item in items if item]


def accurate(found, expected, spec):
    """A stated number equals the expected one: within the tolerance, or to the precision that was asked for."""
    half = half_unit(expected, spec)
    if half is None:
        return close(found, expected, spec["rtol"], spec.get("atol", 0.0))
    return close(found, expected, 0.0, max(half * (1 + 1e-6), spec.get("atol", 0.0)))


def half_unit(expected, spec):
    """Half a unit of the last place that was asked for; None where no precision was."""
    if spec.get("decimals") is not None:
        return 0.5 * 10.0 ** -spec["decimals"]
    if spec.get("digits") is None:
        return None
    return 0.5 * 10.0 ** (math.floor(math.log10(abs(expected))) + 1 - spec["digits"]) if expected else 0.0
