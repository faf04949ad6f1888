"""What tick labels say: numbers, dates or categories, and whether that agrees with their places."""

import datetime
import math
import re

MATH = re.compile(r"\$?\\math(?:default|regular|rm|bf)\{((?:[^{}]|\{[^{}]*\})*)\}\$?")
POWER = re.compile(r"^(?:([-+]?[\d.]+)\\times)?\s*(-?)10\^\{?([-+]?\d+)\}?$")
NUMBER = re.compile(r"^[^\d.+\-]{0,4}?([-+]?(?:\d[\d,\u202f ]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([kKMBbG%]|bn|Mio)?[^\d]{0,12}$")
SUFFIX = {None: 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "Mio": 1e6, "G": 1e9, "B": 1e9, "b": 1e9, "bn": 1e9, "%": 1.0}
MONTHS = {m: i + 1 for i, m in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split())}


def plain(text):
    """Text without math markup, with an ASCII minus."""
    text = MATH.sub(r"\1", text.replace("\u2212", "-"))
    return text.strip().strip("$").strip()


def number(text):
    """(value, rounding) of a numeric label; None where it is not one."""
    text = plain(text)
    if power := POWER.match(text):
        value = float(power[1] or 1) * 10.0 ** int(power[3]) if abs(int(power[3])) < 300 else math.nan
        value = -value if power[2] else value
        return value, abs(value) * 1e-9
    found = NUMBER.match(text)
    if not found:
        return None
    digits = re.sub(r"[,\u202f ]", "", found[1])
    scale = SUFFIX[found[2]]
    mantissa, _, exponent = digits.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - decimals) if abs(int(exponent or 0)) < 300 else 1.0
    return float(digits) * scale, unit * scale / 2


def offset(text):
    """(factor, shift) that an axis' offset text stands for."""
    text = plain(text).replace(" ", "")
    if not text:
        return 1.0, 0.0
    shift, factor = 0.0, 1.0
    for part in re.findall(r"\\times10\^\{?-?\d+\}?|[-+]?\d*\.?\d*(?:\\times10\^\{?-?\d+\}?|e[-+]?\d+)?", text):
        if part.startswith("\\times"):
            factor = 10.0 ** int(re.search(r"-?\d+\}?$", part)[0].rstrip("}"))
        elif re.fullmatch(r"1e[-+]?\d+", part):
            factor = float(part)
        elif part and (value := number(part)) is not None:
            shift = value[0]
    return factor, shift


def numeric(ticks, offset_text):
    """Whether the labels are numbers that agree with the ticks' places: True, False, or None (not numbers)."""
    read = [(loc, number(label)) for loc, label in ticks]
    known = [(loc, value) for loc, value in read if value is not None]
    if len({loc for loc, _ in known}) < 2 or len(known) < 0.8 * len(read):
        return None
    factor, shift = offset(offset_text)
    percent = any("%" in label for _, label in ticks)
    for scale in (factor, factor * 0.01) if percent else (factor,):
        if all(_agrees(loc, value, scale, shift) for loc, value in known):
            return True
    return False


def _agrees(loc, value, factor, shift):
    stated, rounding = value
    slack = rounding * factor * 1.01 + 1e-9 * max(abs(loc), abs(shift))
    return abs(stated * factor + shift - loc) <= slack


def dates(ticks, offset_text, to_date):
    """Whether the labels are dates that agree with the ticks' places. None: no dates."""
    agreed, year = 0, False
    for loc, label in ticks:
        try:
            moment = to_date(loc)
        except (ValueError, OverflowError, TypeError):
            return None
        parts = _date_parts(plain(label))
        if parts is None:
            return None
        if any(getattr(moment, name) != value for name, value in parts.items()):
            return False
        agreed += 1
        year = year or "year" in parts
    parts = _date_parts(plain(offset_text)) or {}
    return True if agreed >= 2 and (year or "year" in parts) else None


def _date_parts(label):
    """The parts of a date that a label names."""
    label = label.replace("{", "").replace("}", "")
    if found := re.fullmatch(r"(\d{4})(?:[-/.](\d{1,2}))?(?:[-/.](\d{1,2}))?(?:[ T](\d{2})(?::\d{2})*)?", label):
        names = ("year", "month", "day", "hour")
        return {name: int(value) for name, value in zip(names, found.groups()) if value is not None}
    parts = {}
    for word in re.split(r"[\s,\-]+", label):
        if word[:3].lower() in MONTHS and word.isalpha():
            parts["month"] = MONTHS[word[:3].lower()]
        elif re.fullmatch(r"\d{4}", word):
            parts["year"] = int(word)
        elif re.fullmatch(r"\d{1,2}", word):
            parts["day"] = int(word)
        else:
            return None
    if set(parts) == {"day"} and not 1 <= parts["day"] <= 31:
        return None
    return parts or None


def to_datetime(value):
    """A reference value as datetime; None where it is no date."""
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime()
    if isinstance(value, datetime.datetime):
        return value
    if isinstance(value, datetime.date):
        return datetime.datetime(value.year, value.month, value.day)
    if isinstance(value, str) and re.match(r"^\d{4}-\d{1,2}(-\d{1,2})?([ T].*)?$", value):
        for form in ("%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d", "%Y-%m"):
            try:
                return datetime.datetime.strptime(value, form)
            except ValueError:
                continue
    return None
