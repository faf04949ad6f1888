"""Reads answers to mathematical questions, in LaTeX or plain notation, as values of sympy.

The text is hostile: a tokenizer and a parser of our own build every object. Sympy's parsers are not used, because they
evaluate what they read as Python, and its reader of LaTeX needs another package.

A value is a tuple: ("expression", e), ("ordered", open, items, close), ("set", items), ("matrix", rows),
("relation", kind, e) for e = 0, e > 0 or e >= 0, ("named", symbol, value) for `x = 5`, ("union", items) or
("text", normalized text).
"""

import re

import sympy

MAX_TEXT = 2000
MAX_DEPTH = 40
MAX_ITEMS = 200
MAX_DIGITS = 3000  # of a power of numbers
MAX_FACTORIAL = 500
MAX_ROOT = 10**12  # base of a fractional power, which sympy factors

FUNCTIONS = {
    "sin": sympy.sin, "cos": sympy.cos, "tan": sympy.tan, "cot": sympy.cot, "sec": sympy.sec, "csc": sympy.csc,
    "arcsin": sympy.asin, "arccos": sympy.acos, "arctan": sympy.atan, "asin": sympy.asin, "acos": sympy.acos, "atan": sympy.atan,
    "sinh": sympy.sinh, "cosh": sympy.cosh, "tanh": sympy.tanh, "ln": sympy.log, "log": None, "lg": None, "exp": sympy.exp,
    "sqrt": sympy.sqrt, "abs": sympy.Abs,
}  # fmt: skip
GREEK = (
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau upsilon phi "
    "varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell"
).split()
CLOSING = {"(": ")", "[": "]", "\\{": "\\}", "{": "}"}
RELATIONS = {
    "=": "=", "<": "<", ">": ">", "\\lt": "<", "\\gt": ">", "\\le": "<=", "\\leq": "<=", "\\leqslant": "<=", "\\ge": ">=",
    "\\geq": ">=", "\\geqslant": ">=",
}  # fmt: skip
TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d*)?|\.\d+)|(\\[A-Za-z]+|\\[{}])|([A-Za-z]+)|([-+*/^_()\[\]{}|,;=<>!']))")
THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?![\d,])")
MATRIX = re.compile(r"\\begin\{([pbBvV]?matrix|array)\}(?:\{[^{}]*\})?(.*?)\\end\{\1\}", re.S)
REPLACED = (
    (r"\\(?:dfrac|tfrac|cfrac)(?![A-Za-z])", r"\\frac"), (r"\\(?:mathrm|textbf|textit|mbox|mathbf|operatorname|textnormal)(?=\s*\{)", r"\\text"),
    (r"\\(?:left|right|big|Big|bigg|Bigg|displaystyle|limits)(?![A-Za-z])", ""), (r"\\[,!;: ]|~|\\q?quad(?![A-Za-z])", " "), (r"\{,\}", ""),
    (r"\\(?:cdot|times|ast)(?![A-Za-z])|[×·⋅∗]", " * "), (r"\\div(?![A-Za-z])|÷", " / "), (r"[−–]", "-"),
    (r"\^\s*(?:\\circ|\{\s*\\circ\s*\})|°|\\degree(?![A-Za-z])", ""), (r"\\?%|\\?\$", ""), ("∞", r"\\infty "), ("π", r"\\pi "), ("√", r"\\sqrt "),
    ("∪", r"\\cup "), ("≤", r"\\le "), ("≥", r"\\ge "), ("±", r"\\pm "), ("∅", r"\\emptyset "), (r"\*\*", "^"),
    (r"\\text\s*\{\s*(?:and|or)\s*\}", ","), (r"\\(?:lvert|rvert|vert|mid)(?![A-Za-z])", "|"), (r"\\(?:lbrace)(?![A-Za-z])", r"\\{"), (r"\\(?:rbrace)(?![A-Za-z])", r"\\}"),
)  # fmt: skip


class UnreadableError(ValueError):
    """The text is no formula that is known here."""


def readings(text):
    """What a text can mean, the most likely first. A comma between groups of three digits may also separate values."""
    text = cleaned(text)
    found = []
    for form in dict.fromkeys((THOUSANDS.sub(lambda m: m[0].replace(",", ""), text), text)):
        try:
            found.append(value(form))
        except (UnreadableError, RecursionError):
            continue
    found.append(("text", normalized(text)))
    return found


def cleaned(text):
    """The answer without what surrounds it: marks of a formula, a box, a unit after it, a full stop."""
    text = text.strip()
    if len(text) > MAX_TEXT:
        raise UnreadableError(f"more than {MAX_TEXT} characters")
    for _ in range(4):
        old = text
        text = text.strip().removesuffix(".").strip()
        for start, end in (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
            if len(text) > len(start + end) and text.startswith(start) and text.endswith(end) and start not in text[len(start) : -len(end)]:
                text = text[len(start) : -len(end)]
        found = re.fullmatch(r"\\(?:boxed|fbox)\s*\{(.*)\}", text, re.S)
        if found and balanced(found[1]):
            text = found[1]
        if text == old:
            break
    if not MATRIX.search(text):
        for pattern, new in REPLACED:
            text = re.sub(pattern, new, text)
    return text.strip()


def balanced(text):
    depth = 0
    for char in text:
        depth += (char == "{") - (char == "}")
        if depth < 0:
            return False
    return depth == 0


def normalized(text):
    """Text as it is compared where it is no formula."""
    text = re.sub(r"\\text\s*\{([^{}]*)\}", r"\1", text)
    text = " ".join(re.sub(r"[\\{}$]", " ", text).split()).casefold().rstrip(".")
    return text[1:-1] if re.fullmatch(r"\([a-z]\)", text) else text


def unit(text):
    """(formula, its unit): text after a formula that ends with a digit or a bracket."""
    found = re.fullmatch(r"(.*[\d)}\]!])\s*(?:\\text\s*\{([^{}]*)\}(?:\^\{?\d\}?)?|\s(?!or\b|and\b)([A-Za-z]{2,}(?: [A-Za-z]+)?))", text, re.S)
    if not found or found[3] in FUNCTIONS:
        return text, ""
    return found[1], (found[2] or found[3]).strip().casefold().removesuffix(".").removesuffix("s")


def value(text):
    """The value of a cleaned text. Raises UnreadableError."""
    matrix = MATRIX.fullmatch(text)
    if matrix:
        rows = [row for row in re.split(r"\\\\", matrix[2]) if row.strip()]
        return "matrix", [[value(cleaned(cell)) for cell in row.split("&")] for row in rows]
    if re.search(r"\\begin|\\text|&", text):
        raise UnreadableError("a text")
    # A word is no product of its letters.
    if re.fullmatch(r"[A-Za-z]{2,}", text) and text not in ("pi", "infinity"):
        raise UnreadableError("a word")
    signs = re.search(r"\\(?:pm|mp)(?![A-Za-z])", text)
    if signs:
        both = [re.sub(r"\\pm(?![A-Za-z])", a, re.sub(r"\\mp(?![A-Za-z])", b, text)) for a, b in (("+", "-"), ("-", "+"))]
        return "set", [value(form) for form in both]
    return Parser(text).all()


class Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text):
        self.tokens, at, text = [], 0, text.rstrip()
        while at < len(text):
            found = TOKEN.match(text, at)
            if not found:
                raise UnreadableError(f"`{text[at]}` is not known")
            number, command, letters, sign = found.groups()
            if letters:
                self.tokens += [("letter", part) for part in words(letters)]
            else:
                self.tokens.append(("number", number) if number else ("sign", command or sign))
            at = found.end()
        self.at, self.depth, self.in_bars = 0, 0, False

    def peek(self, offset=0):
        at = self.at + offset
        return self.tokens[at] if at < len(self.tokens) else ("end", "")

    def sign(self, *signs):
        """Takes the next token if it is one of these."""
        kind, text = self.peek()
        if kind == "sign" and text in signs:
            self.at += 1
            return text
        return None

    def expect(self, sign):
        if not self.sign(sign):
            raise UnreadableError(f"`{sign}` is missing")

    def all(self):
        """The whole text: values that commas separate are a set."""
        items = [self.union()]
        while self.sign(",", ";"):
            items.append(self.union())
            if len(items) > MAX_ITEMS:
                raise UnreadableError("too many values")
        if self.peek()[0] != "end":
            raise UnreadableError(f"`{self.peek()[1]}` is unexpected")
        return items[0] if len(items) == 1 else ("set", items)

    def union(self):
        items = [self.relation()]
        while self.sign("\\cup"):
            items.append(self.relation())
        return items[0] if len(items) == 1 else ("union", items)

    def relation(self):
        if self.peek()[0] == "letter" and self.peek(1) == ("sign", "\\in"):
            self.at += 2
            return self.union()
        sides, kinds = [self.item()], []
        while kind := self.sign(*RELATIONS):
            kinds.append(RELATIONS[kind])
            sides.append(self.item())
        if not kinds:
            return sides[0]
        # `x = 5` answers with 5.
        if kinds == ["="] and sides[0][0] == "expression" and sides[0][1].is_Symbol:
            if sides[1][0] != "expression" or sides[0][1] not in sides[1][1].free_symbols:
                return "named", sides[0][1], sides[1]
        if any(side[0] != "expression" for side in sides):
            raise UnreadableError("a relation between values that are no expressions")
        found = []
        for kind, (_, left), (_, right) in zip(kinds, sides, sides[1:]):
            difference = right - left if kind.startswith("<") else left - right
            found.append(("relation", kind.replace("<", ">"), difference))
        return found[0] if len(found) == 1 else ("set", found)

    def item(self):
        """A set, a tuple or an interval in brackets of its own, or an expression."""
        if self.sign("\\emptyset", "\\varnothing"):
            return "set", []
        start, (kind, opening) = self.at, self.peek()
        if kind == "sign" and opening in ("(", "[", "\\{"):
            found = self.group(opening)
            follows = self.peek()
            if found and (follows[0] == "end" or follows[1] in (",", ";", "\\cup", ")", "]", "\\}", *RELATIONS)):
                return found
            self.at = start
        return "expression", self.sum()

    def group(self, opening):
        """What brackets with commas enclose; None if these are brackets of an expression."""
        self.at += 1
        self.deeper()
        if opening == "\\{" and self.sign("\\}"):
            return "set", []
        items = [self.relation()]
        while self.sign(",", ";"):
            items.append(self.relation())
        self.depth -= 1
        if opening == "\\{":
            return ("set", items) if self.sign("\\}") else None
        closing = self.sign(")", "]")
        if not closing or len(items) == 1:
            return None
        return "ordered", opening, items, closing

    def deeper(self):
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableError("nested too deeply")

    def sum(self):
        self.deeper()
        total = self.product()
        while sign := self.sign("+", "-"):
            term = self.product()
            total = total + term if sign == "+" else total - term
        self.depth -= 1
        return total

    def product(self):
        sign = 1
        while found := self.sign("+", "-"):
            sign = -sign if found == "-" else sign
        result = self.power()
        while True:
            if self.sign("*"):
                result = result * self.signed()
            elif self.sign("/"):
                result = quotient(result, self.signed())
            elif self.starts_factor():
                result = self.juxtaposed(result)
            else:
                return sign * result

    def signed(self):
        """A factor after a sign of multiplication or division, which may be negative."""
        return -self.power() if self.sign("-") else self.power()

    def juxtaposed(self, left):
        """`2x`, or the mixed number `3 1/2`."""
        kind, text = self.peek()
        previous = self.tokens[self.at - 1][0]
        if previous == "number" and kind == "number":
            if not (self.peek(1) == ("sign", "/") and self.peek(2)[0] == "number" and left.is_Integer):
                raise UnreadableError("two numbers without a sign between them")
            numerator, denominator = (sympy.Rational(self.peek(offset)[1]) for offset in (0, 2))
            self.at += 3
            return left + quotient(numerator, denominator)
        mixed = previous == "number" and text == "\\frac" and left.is_Integer
        right = self.power()
        return left + right if mixed and right.is_Rational else left * right

    def starts_factor(self):
        kind, text = self.peek()
        if kind == "sign" and text == "|":
            return not self.in_bars
        return kind in ("number", "letter") or kind == "sign" and (text in ("(", "[", "{") or text.startswith("\\") and self.is_atom(text))

    @staticmethod
    def is_atom(text):
        name = text[1:]
        return name in FUNCTIONS or name in GREEK or name in ("frac", "sqrt", "pi", "infty", "binom", "dbinom", "tbinom", "lfloor", "lceil")

    def power(self):
        base = self.atom()
        while self.sign("!"):
            if not (base.is_Integer and 0 <= base <= MAX_FACTORIAL):
                raise UnreadableError("a factorial that is not computed")
            base = sympy.factorial(base)
        return raised(base, self.exponent()) if self.sign("^") else base

    def exponent(self):
        if self.sign("-"):
            return -self.exponent()
        if self.peek() == ("sign", "{"):
            return self.argument()
        base = self.atom()
        return raised(base, self.exponent()) if self.sign("^") else base

    def argument(self):
        """What a command is applied to: a group, or one digit or letter as in `\\frac12`."""
        if self.sign("{"):
            found = self.sum()
            self.expect("}")
            return found
        kind, text = self.peek()
        if kind == "number" and len(text) > 1 and text.isdigit():
            self.tokens[self.at] = ("number", text[1:])
            return sympy.Integer(text[0])
        return self.atom()

    def atom(self):
        kind, text = self.peek()
        self.at += 1
        if kind == "number":
            if self.peek() == ("sign", "_"):
                # A number in another base stands for itself.
                self.at += 1
                base = self.argument()
                return sympy.Symbol(f"{text}_{base}")
            return sympy.Rational(text)
        if kind == "letter":
            if text in FUNCTIONS:
                return self.function(text)
            return self.symbol(text)
        if kind == "sign":
            if text in ("(", "[", "{"):
                bars, self.in_bars = self.in_bars, False
                found = self.sum()
                self.in_bars = bars
                self.expect(CLOSING[text])
                return found
            if text == "|" and not self.in_bars:
                self.in_bars = True
                found = self.sum()
                self.in_bars = False
                self.expect("|")
                return sympy.Abs(found)
            if text.startswith("\\"):
                return self.command(text[1:])
        raise UnreadableError("a value is missing")

    def command(self, name):
        if name == "frac":
            return quotient(self.argument(), self.argument())
        if name in ("binom", "dbinom", "tbinom"):
            n, k = self.argument(), self.argument()
            if not all(one.is_Integer and abs(one) <= MAX_FACTORIAL for one in (n, k)):
                raise UnreadableError("a binomial that is not computed")
            return sympy.binomial(n, k)
        if name == "sqrt":
            degree = sympy.Integer(2)
            if self.sign("["):
                degree = self.sum()
                self.expect("]")
            return raised(self.argument(), quotient(sympy.Integer(1), degree))
        if name in ("lfloor", "lceil"):
            inner = self.sum()
            self.expect("\\r" + name[1:])
            return (sympy.floor if name == "lfloor" else sympy.ceiling)(inner)
        if name in FUNCTIONS:
            return self.function(name)
        if name == "pi":
            return sympy.pi
        if name == "infty":
            return sympy.oo
        if name in GREEK:
            return self.symbol(name)
        raise UnreadableError(f"\\{name} is not known")

    def function(self, name):
        base = exponent = None
        while sign := self.sign("_", "^"):
            if sign == "_":
                base = self.argument()
            else:
                exponent = self.exponent()
        if self.peek() in (("sign", "("), ("sign", "{"), ("sign", "[")):
            argument = self.atom()
        else:
            argument = self.power()
            while self.starts_factor() and not self.is_function():
                argument = argument * self.power()
        function = FUNCTIONS[name]
        if name == "sqrt":
            found = raised(argument, sympy.Rational(1, 2))
        elif function is None:
            found = sympy.log(argument, base if base is not None else 10)
        elif base is not None:
            raise UnreadableError(f"{name} has no base")
        else:
            found = function(argument)
        if exponent == -1 and name in ("sin", "cos", "tan"):
            return FUNCTIONS["a" + name](argument)
        return found if exponent is None else raised(found, exponent)

    def is_function(self):
        kind, text = self.peek()
        return text.removeprefix("\\") in FUNCTIONS

    def symbol(self, name):
        if name == "pi":
            return sympy.pi
        if name in ("infinity", "inf"):
            return sympy.oo
        if self.sign("_"):
            return sympy.Symbol(f"{name}_{self.argument()}")
        return {"e": sympy.E, "i": sympy.I}.get(name) or sympy.Symbol(name)


def words(letters):
    """A run of letters as names of functions and constants, or as one-letter variables."""
    if letters in FUNCTIONS or letters in ("pi", "infinity", "inf"):
        return [letters]
    if len(letters) > 3:
        raise UnreadableError("a word")
    return list(letters)


def quotient(a, b):
    if b.is_zero:
        raise UnreadableError("a division by zero")
    return a / b


def raised(base, exponent):
    """A power of bounded size."""
    if base.is_zero and (exponent.is_negative or not exponent.is_number):
        raise UnreadableError("a division by zero")
    if base.is_Rational and exponent.is_Rational:
        digits = sympy.log(max(abs(base.p), base.q, 2), 10).evalf(10) * abs(exponent)
        if digits > MAX_DIGITS or (not exponent.is_Integer and max(abs(base.p), base.q) > MAX_ROOT):
            raise UnreadableError("a power that is too large")
    elif exponent.is_number and not exponent.is_infinite and abs(exponent.evalf(10)) > MAX_DIGITS:
        raise UnreadableError("a power that is too large")
    return base**exponent
