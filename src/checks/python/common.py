"""What every check shares: outcomes, bounded access to the candidate, comparison of values."""

import fnmatch
import json
import math
import os
import re
import stat
import unicodedata

MAX_BYTES = 64 * 1024 * 1024
MAX_TEXT = 8 * 1024 * 1024
MAX_ROWS = 500_000
MAX_CELLS = 5_000_000


class Fail(Exception):
    """The check does not hold: what was expected, what was there."""


class Mismatch(Fail):
    """A value is not the expected one. `values` holds both as texts, for reports."""

    def __init__(self, place, expected, found):
        super().__init__(f"{place}: expected {expected}, found {found}")
        self.values = {"place": str(place), "expected": str(expected), "found": str(found)}


class Unproven(Exception):
    """A claim that the picture does not support; the text says which."""


class OursError(Exception):
    """The reference or the task is wrong: no verdict on the candidate."""


class StalledError(OursError):
    """The machine was held up: the same check may succeed later."""


class Unfit(Exception):
    """The files do not suit the task: no verdict on the candidate."""


class AnyOf:
    """Values any of which is right."""

    def __init__(self, choices):
        if not choices:
            raise OursError("no alternative is given")
        self.choices = list(choices)


class Candidate:
    """What the agent left: files under `root/output`, its answer, its chart records."""

    def __init__(self, root, answer="", claims=(), predictions=None, runs=None, calls=None):
        self.root, self.answer, self.claims = root, answer, list(claims)
        self.predictions, self.runs, self.calls = predictions, runs, calls

    def file(self, path, most=MAX_BYTES):
        """The host path of an output, which is a regular file of bounded size."""
        parts = path.split("/")
        if path.startswith("/") or ".." in parts:
            raise OursError(f"{path} leaves the workspace")
        full = os.path.join(self.root, *self.named(parts, path))
        try:
            state = os.lstat(full)
        except OSError:
            raise Fail(f"{path} does not exist") from None
        if not stat.S_ISREG(state.st_mode):
            raise Fail(f"{path} is no regular file")
        if state.st_size == 0:
            raise Fail(f"{path} is empty")
        if state.st_size > most:
            raise Fail(f"{path} has {state.st_size} bytes, more than {most}")
        return full

    def named(self, parts, path):
        """The parts of a path whose name may hold wildcards: the one file that fits."""
        if not any(mark in parts[-1] for mark in "*?["):
            return parts
        folder = os.path.join(self.root, *parts[:-1])
        found = sorted(fnmatch.filter(os.listdir(folder), parts[-1])) if os.path.isdir(folder) else []
        if len(found) != 1:
            raise Fail(f"{len(found)} files are named {path}, one was expected: {short(found)}")
        return [*parts[:-1], found[0]]

    def bytes(self, path, most=MAX_BYTES):
        with open(self.file(path, most), "rb") as file:
            return file.read(most + 1)

    def text(self, path, most=MAX_TEXT):
        return decode(self.bytes(path, most), path)


def utf8(data, what):
    """Text of a file in UTF-8, with or without a byte order mark."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Fail(f"{what} is not in UTF-8") from None


def strict_json(text):
    """The value of a JSON text; ValueError where it is none. Python's parser takes NaN, JSON knows none."""

    def refuse(name):
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def decode(data, what):
    """Text of a file, by byte order mark, else UTF-8, else GB18030."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        codecs = ("utf-16",)
    else:
        codecs = ("utf-8-sig", "gb18030")
    for codec in codecs:
        try:
            return data.decode(codec)
        except UnicodeDecodeError:
            continue
    raise Fail(f"{what} is not text")


def reference(names, name):
    """A variable of the reference; its absence is an error of ours."""
    if name not in names:
        raise OursError(f"the reference does not define `{name}`")
    return names[name]


def scalar(value):
    """A reference value as int, float, str, bool or None."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if hasattr(value, "isoformat"):
        return None if type(value).__name__ == "NaTType" else value.isoformat()
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    if type(value).__module__ in ("decimal", "fractions"):
        return float(value)
    return value if isinstance(value, (int, float, str)) else str(value)


def close(found, expected, rtol, atol=0.0):
    """Numbers within tolerance, inclusive."""
    if math.isinf(expected) or math.isinf(found):
        return found == expected
    if math.isnan(expected) or math.isnan(found):
        return math.isnan(found) and math.isnan(expected)
    # The last term forgives the rounding of the tolerance itself.
    return abs(found - expected) <= atol + rtol * abs(expected) + 1e-12 * max(abs(expected), abs(atol))


def numeric(value):
    """A value as float; None where it is no number. Text counts when it is written as one."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return None
    if isinstance(value, str) and len(value) < 60 and re.fullmatch(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?\s*", value):
        return float(value)
    return None


MIDNIGHT = re.compile(r"^(\d{4}-\d{2}-\d{2})[T ]00:00(:00(\.0+)?)?(Z|\+00:00)?$")


def text_form(value):
    """Text as it is compared: NFC, no outer white space, dates without a midnight."""
    text = unicodedata.normalize("NFC", str(value)).replace("\r\n", "\n").strip()
    if found := MIDNIGHT.match(text):
        return found[1]
    return re.sub(r"^(\d{4}-\d{2}-\d{2})T(\d{2}:)", r"\1 \2", text)


def same_value(found, expected, rtol, atol=0.0):
    """A cell equals the reference cell. A text with leading zeros is no number."""
    found, expected = scalar(found), scalar(expected)
    if missing(found) or missing(expected):
        return (missing(found) and missing(expected)) or (isinstance(found, str) and found == expected)
    if isinstance(expected, bool) or isinstance(found, bool):
        return truth(found) is not None and truth(found) == truth(expected)
    a, b = numeric(found), numeric(expected)
    if isinstance(expected, (int, float)) and b is not None:
        return a is not None and close(a, b, rtol, atol)
    if text_form(found) == text_form(expected):
        return True
    is_code = isinstance(expected, str) and re.match(r"\s*[-+]?0\d", expected)
    return a is not None and b is not None and not is_code and close(a, b, rtol, atol)


# What pandas takes for a missing value when it is all that a cell of text holds.
NA = frozenset(
    ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA")
    + ("NULL", "NaN", "None", "n/a", "nan", "null")
)


def missing(value):
    """None, or a text that stands for it, as programs write it."""
    return value is None or (isinstance(value, str) and (value.strip() in NA or value.strip() == "NaT"))


def truth(value):
    """True or False where a value says so."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return {"true": True, "false": False, "1": True, "0": False}.get(value.strip().lower())
    return {1: True, 0: False}.get(value) if isinstance(value, (int, float)) else None


def short(value, most=80):
    """A value in few characters."""
    text = repr(value) if not isinstance(value, str) else value
    text = text.replace("\n", "⏎")
    return text if len(text) <= most else text[: most - 1] + "…"
