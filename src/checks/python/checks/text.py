"""text: a text file in UTF-8 equals the reference string, line ends and trailing white space aside."""

import unicodedata

from common import MAX_TEXT, Mismatch, OursError, reference, short, utf8


def check(spec, names, candidate):
    expected = reference(names, spec["expected"])
    if not isinstance(expected, str):
        raise OursError(f"the reference's `{spec['expected']}` is no string")
    found, wanted = lines(utf8(candidate.bytes(spec["path"], MAX_TEXT), spec["path"])), lines(expected)
    for i, (line, want) in enumerate(zip(found, wanted)):
        if line != want:
            raise Mismatch(f"{spec['path']}: line {i + 1}", short(want), short(line))
    if len(found) != len(wanted):
        raise Mismatch(spec["path"], f"{len(wanted)} lines", len(found))


def lines(text):
    """Lines without trailing white space; empty lines at the end do not count."""
    text = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").rstrip()
    return [line.rstrip() for line in text.split("\n")]
