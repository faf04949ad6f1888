"""symbolic: the mathematical answer stated in the final message equals the reference's, in whatever form it is written.

Expressions are equal if they have the same value, with 50 digits; those with variables at several points. Tuples and
intervals are compared item by item, sets and lists as sets, relations up to a factor, anything else as text.
"""

import random
import re

import sympy
from answers import stated
from common import Fail, Mismatch, OursError, reference, scalar, short
from formulas import UnreadableError, cleaned, readings, unit

DIGITS = 50
CLOSE = sympy.Float("1e-30", DIGITS)
TINY = sympy.Float("1e-45", DIGITS)
POINTS = 12
LEAST_POINTS = 4  # at which both sides must have a value


def check(spec, names, candidate):
    expected = str(scalar(reference(names, spec["expected"])))
    # `**` is emphasis for other checks.
    answer = re.sub(r"(?<=[A-Za-z0-9)\]}])\*\*(?=[A-Za-z0-9({\\-])", "^", candidate.answer)
    found = stated(answer, spec["marker"])
    try:
        holds = equal_texts(found, expected)
    except UnreadableError as error:
        raise Fail(f"`{spec['marker']}`: {error}: {short(found)}") from None
    if not holds:
        raise Mismatch(f"`{spec['marker']}`", short(expected), short(found))


def equal_texts(found, expected):
    """Whether two answers are equal, as they are written."""
    try:
        wanted_text, wanted_unit = unit(cleaned(expected))
    except UnreadableError as error:
        raise OursError(f"the expected answer is not usable: {error}") from None
    found_text, found_unit = unit(cleaned(found))
    if wanted_unit and found_unit and wanted_unit != found_unit:
        return False
    if found_unit and not wanted_unit and re.search("[A-Za-z]", wanted_text):
        found_text = cleaned(found)  # where letters are expected, a word is no unit
    wanted, given = readings(wanted_text), readings(found_text)
    base = re.fullmatch(r"(\d+)_\{?\d+\}?", wanted_text)
    if base and re.fullmatch(r"\d+", found_text):  # the base is the question's
        return base[1] == found_text
    return any(equal(a, b) for a in given for b in wanted)


def equal(a, b):
    if a[0] == "named" and b[0] == "named" and a[1] != b[1]:
        return False
    a, b = (one[2] if one[0] == "named" else one for one in (a, b))
    if a[0] != b[0]:
        return False
    kind = a[0]
    if kind == "text":
        return a[1] == b[1] and a[1] != ""
    if kind == "expression":
        return same(a[1], b[1])
    if kind == "ordered":
        return (a[1], a[3]) == (b[1], b[3]) and in_order(a[2], b[2])
    if kind == "matrix":
        return len(a[1]) == len(b[1]) and all(in_order(x, y) for x, y in zip(a[1], b[1]))
    if kind == "relation":
        return a[1] == b[1] and proportional(a[2], b[2], a[1] != "=")
    return one_to_one(a[1], b[1])


def in_order(a, b):
    return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b))


def one_to_one(a, b):
    """Whether two sets have the same items. Equality is transitive here, so the first match can be taken."""
    rest = list(b)
    for item in a:
        at = next((i for i, other in enumerate(rest) if equal(item, other)), None)
        if at is None:
            return False
        rest.pop(at)
    return not rest


def same(a, b):
    """Whether two expressions have the same value."""
    if a == b:
        return True
    if a.is_Rational and b.is_Rational:
        return False  # both are exact
    symbols = sorted(a.free_symbols | b.free_symbols, key=str)
    if not symbols:
        return near(numeric(a), numeric(b))
    agreed = 0
    for point in points(symbols):
        x, y = numeric(a, point), numeric(b, point)
        if x is None and y is None:
            continue
        if not near(x, y):
            return False
        agreed += 1
    return agreed >= LEAST_POINTS


def proportional(a, b, positive):
    """Whether one expression is the other one times a number, which has to be positive for inequalities."""
    symbols = sorted(a.free_symbols | b.free_symbols, key=str)
    if not symbols or a.free_symbols != b.free_symbols:
        return False
    factor, agreed = None, 0
    for point in points(symbols):
        x, y = numeric(a, point), numeric(b, point)
        if x is None or y is None or y == 0:
            continue
        if factor is None:
            factor = x / y
        if not near(x, sympy.N(factor * y, DIGITS)):
            return False
        agreed += 1
    sign = factor is not None and (not positive or (factor.is_real and factor > 0)) and factor != 0
    return bool(sign) and agreed >= LEAST_POINTS


def points(symbols):
    """Values of the variables, positive and negative, the same ones each time."""
    drawn = random.Random(20210305)
    for _ in range(POINTS):
        yield {symbol: sympy.Rational(drawn.randint(-9999, 9999) or 1, drawn.randint(1000, 4000)) for symbol in symbols}


def numeric(expression, point=None):
    """The value of an expression; None where it has none."""
    value = sympy.N(expression.subs(point) if point else expression, DIGITS)
    return None if value.has(sympy.nan, sympy.zoo) or not value.is_number else value


def near(a, b):
    if a is None or b is None:
        return False
    if sympy.oo in (a, b) or -sympy.oo in (a, b):
        return a == b
    return bool(abs(a - b) <= CLOSE * max(abs(a), abs(b)) + TINY)
