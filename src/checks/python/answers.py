"""Reading values from the final message."""

import re
import unicodedata

from common import Fail, short

MARKS = "*_`#> \t"
WRITTEN = re.compile(
    r"(?<![\w.])[-+−–]? ?(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]*)?(?:[eE][-+−]?[0-9]{1,3})?"
    r"|(?<![\w.])[-+−–]?\.[0-9]+"
)


def stated(answer, marker):
    """What follows the label on the last line that starts with it."""
    wanted = _folded(marker)
    found = None
    for line in answer[-20_000:].splitlines():
        line = unicodedata.normalize("NFC", line)
        line = re.sub(r"^\s*(?:[-*•+]\s+|\d+[.)]\s+)?", "", line).replace("**", "").replace("__", "").replace("`", "")
        label, colon, rest = re.match(r"^([^:：]*)([:：]?)(.*)$", line, re.S).groups()
        # A label may itself hold a colon.
        if not colon or _folded(label) != wanted:
            if not _folded(line).startswith(wanted + ":"):
                continue
            rest = re.split(r"[:：]", line, maxsplit=1 + len(re.findall("[:：]", marker)))[-1]
        found = rest.strip().strip(MARKS)
    if found is None:
        raise Fail(f"the answer has no line `{marker}: …`")
    return found


def _folded(text):
    return " ".join(unicodedata.normalize("NFC", text).replace("：", ":").strip(MARKS).casefold().split())


def numbers(text):
    """Every number written in a text, with whether a percent sign follows."""
    found = []
    for match in WRITTEN.finditer(text):
        digits = match[0].replace(",", "").replace("−", "-").replace("–", "-").replace(" ", "")
        found.append((float(digits), text[match.end() : match.end() + 2].strip()[:1] in ("%", "％")))
    return found


def one_number(answer, marker):
    """The single number on the marked line: [(value)], as written and, with a percent sign, as a share."""
    line = stated(answer, marker)
    found = numbers(line)
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
