"""What a `property` check may ask of a candidate: its answer, files and charts, read within bounds.

A property is a function of the reference, `holds(work)`. It returns where the candidate is right and
says what is wrong by `work.need(condition, reason)`; anything else it raises is a failure to read.
"""

import os
import re
import unicodedata

import answers
from common import Fail, close, numeric
from tables import read_table, typed


def folded(text):
    """Text as it is compared: NFKC, one space, no case."""
    return " ".join(unicodedata.normalize("NFKC", str(text)).casefold().split())


class Work:
    """One candidate, seen through readers that bound size and time."""

    def __init__(self, candidate):
        self.candidate, self.answer = candidate, unicodedata.normalize("NFKC", candidate.answer)

    def need(self, condition, reason):
        """The candidate fails for this reason unless the condition holds."""
        if not condition:
            raise Fail(reason)

    # The answer.

    def brief(self, most=6000):
        """An answer that repeats its input says nothing."""
        self.need(self.answer.strip(), "the answer is empty")
        self.need(len(self.answer) <= most, f"the answer has {len(self.answer)} characters, more than {most}")

    def numbers(self, text=None):
        """Every number written in a text (the answer), percentages also as shares."""
        out = []
        for value, percent in answers.numbers(self.answer if text is None else text):
            out += [value, value / 100] if percent else [value]
        return out

    def states(self, value, rtol=1e-9, atol=0.0, text=None):
        """Whether the number stands there."""
        return any(close(found, float(value), rtol, atol) for found in self.numbers(text))

    def says(self, *phrases, text=None):
        """Whether one of the phrases stands there: Latin ones as whole words."""
        text = folded(self.answer if text is None else text)
        return any(_found(folded(phrase), text) for phrase in phrases)

    def lines_with(self, *phrases):
        """Lines of the answer that hold one of the phrases."""
        return [line for line in self.answer.splitlines() if self.says(*phrases, text=line)]

    def last(self, digits=True):
        """The last line of the answer that holds a digit (or anything)."""
        lines = [line for line in self.answer.splitlines() if (re.search(r"\d", line) if digits else line.strip())]
        self.need(lines, "the answer states no number" if digits else "the answer is empty")
        return lines[-1]

    def facts(self, wanted, least):
        """At least so many of the facts are stated; each is a number or a tuple of phrases."""
        told = [self.states(f, 1e-6) if isinstance(f, (int, float)) else self.says(*([f] if isinstance(f, str) else f)) for f in wanted]
        self.need(sum(told) >= least, f"{sum(told)} of {len(wanted)} facts are stated, {least} expected")

    # Files.

    def text(self, path):
        """A text file."""
        return self.candidate.text(path)

    def rows(self, path, sheet=None):
        """A table as a list of dicts of int, float, str or None."""
        table = read_table(self.candidate.file(path), path, sheet)
        return [dict(zip(table.columns, map(typed, row))) for row in table.rows]

    def image(self, path, mode="RGB"):
        """A picture, on white where it is transparent unless an alpha is asked for."""
        from PIL import Image
        from pictures import open_picture

        image = open_picture(self.candidate, path)
        if mode in ("RGBA", None):
            return image if mode is None else image.convert("RGBA")
        rgba = image.convert("RGBA")
        out = Image.new("RGB", image.size, "white")
        out.paste(rgba, mask=rgba)
        return out.convert(mode)

    def pixels(self, path, mode="RGB"):
        """A picture as a float array of shape (height, width[, channels]), 0 to 255."""
        import numpy as np

        return np.asarray(self.image(path, mode), dtype=np.float64)

    def video(self, path):
        """(frames per second, an iterator of frames as RGB arrays of bytes) of an MP4."""
        from videos import read_video

        return read_video(self.candidate.file(path), path)

    def silent(self, path):
        """Whether an MP4 has no sound track."""
        from videos import has_sound

        return not has_sound(self.candidate.file(path), path)

    def drawn_pages(self, path, most=20):
        """The pages of a PDF as gray arrays, at 60 dots per inch."""
        from checks.pdf import drawn_pages

        return drawn_pages(self.candidate.file(path), path, most)

    def varied(self, path, colors=8):
        """The picture is no blank: so many colors, none of which covers nearly all."""
        import numpy as np

        pixels = self.pixels(path).astype(np.uint8).reshape(-1, 3)
        _, counts = np.unique(pixels // 16, axis=0, return_counts=True)
        self.need(len(counts) >= colors and counts.max() < 0.995 * len(pixels), f"{path} is nearly blank")

    def files(self, folder, *endings):
        """Paths of the regular files under a folder of the workspace, by ending."""
        root, out = os.path.join(self.candidate.root, folder), []
        for place, folders, names in os.walk(root):
            folders[:] = [f for f in folders if not os.path.islink(os.path.join(place, f))]
            out += [os.path.relpath(os.path.join(place, n), self.candidate.root) for n in names if n.lower().endswith(endings)]
            self.need(len(out) <= 500, f"{folder} holds too many files")
        return sorted(out)

    # Charts and clouds, proven by redrawing them.

    def charts(self, path):
        """Every readable chart of a picture; see `charts.Shown`."""
        import shown

        return shown.charts(self.candidate, path)

    def displayed(self):
        """Charts that were shown without a file; see `shown.displayed`."""
        import shown

        return shown.displayed(self.candidate)

    def cloud(self, path):
        """The words of a word cloud with their sizes (1 is the largest)."""
        import clouds

        return clouds.words(self.candidate, path)

    def overlap(self, words, wanted, least):
        """The share of wanted words among the given ones, without regard to case."""
        have = {folded(word) for word in words}
        share = sum(folded(w) in have for w in wanted) / max(len(wanted), 1)
        self.need(share >= least, f"{share:.2f} of the expected words are there, {least} expected")

    def prediction(self, path):
        """What the other sandbox found of a model: `kinds`, `features`, `answers` to noise, `variants` of predictions."""
        self.candidate.file(path)
        result = (self.candidate.predictions or {}).get(path)
        if not isinstance(result, dict) or "kinds" not in result:
            raise Fail(f"{path}: {str((result or {}).get('error', 'no predictions came back'))[:200]}")
        return result


def _found(phrase, text):
    if not phrase.isascii():
        return phrase in text
    return re.search(rf"(?<![a-z0-9]){re.escape(phrase)}(?![a-z0-9])", text) is not None


def same_numbers(found, wanted, rtol=1e-3, atol=1e-9):
    """Two sequences of numbers are equal within tolerance."""
    found, wanted = list(found), list(wanted)
    if len(found) != len(wanted):
        return False
    return all(numeric(a) is not None and close(float(a), float(b), rtol, atol) for a, b in zip(found, wanted))


def formula(text):
    """A formula in x (LaTeX fractions and `^` allowed) as a function; None where it is none."""
    import ast
    import operator

    text = re.sub(r"\\d?frac\{([^{}]*)\}\{([^{}]*)\}", r"((\1)/(\2))", text.replace("\\left", "").replace("\\right", ""))
    text = text.replace("{", "(").replace("}", ")").replace("^", "**").replace("·", "*")
    text = re.sub(r"(?<=[\dx)])\s*(?=[x(])", "*", text)
    allowed = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv, ast.Pow: pow}

    def value(node, x):
        if isinstance(node, ast.BinOp) and type(node.op) in allowed:
            left, right = value(node.left, x), value(node.right, x)
            if isinstance(node.op, ast.Pow) and abs(right) > 50:
                raise ValueError("the exponent is out of bounds")
            return allowed[type(node.op)](left, right)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            return -value(node.operand, x) if isinstance(node.op, ast.USub) else value(node.operand, x)
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and abs(node.value) < 1e9:
            return float(node.value)
        if isinstance(node, ast.Name) and node.id == "x":
            return x
        raise ValueError("no formula in x")

    try:
        tree = ast.parse(text.strip(), mode="eval").body if len(text) < 300 else None
        return None if tree is None or not any(isinstance(n, ast.Name) for n in ast.walk(tree)) else lambda x: value(tree, x)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def formulas(text):
    """Every formula in x that stands in a text, in order."""
    pieces = re.findall(r"(?:\\d?frac\{[^{}]*\}\{[^{}]*\}|[0-9x+\-*/^(){} .])+", text.replace("**", "^"))
    return [f for piece in pieces if "x" in piece and (f := formula(piece)) is not None]


def grey(pixels):
    """Luminance of an RGB array."""
    return pixels if pixels.ndim == 2 else pixels[..., :3] @ (0.299, 0.587, 0.114)


def likeness(a, b):
    """Correlation of the luminance of two pictures of one size; 0 where either is even."""
    import numpy as np

    a, b = grey(a).ravel(), grey(b).ravel()
    if a.shape != b.shape or min(a.std(), b.std()) < 1e-6:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def ssim(a, b, size=7):
    """Mean structural similarity of the luminance of two pictures of one size (Wang et al. 2004, even window)."""
    from scipy.ndimage import uniform_filter

    a, b = grey(a), grey(b)
    mean_a, mean_b = uniform_filter(a, size), uniform_filter(b, size)
    var_a, var_b = uniform_filter(a * a, size) - mean_a**2, uniform_filter(b * b, size) - mean_b**2
    both = uniform_filter(a * b, size) - mean_a * mean_b
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    return float((((2 * mean_a * mean_b + c1) * (2 * both + c2)) / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))).mean())


def gap(a, b):
    """Mean absolute difference of two pictures of one size, of 255."""
    import numpy as np

    return float(np.abs(a - b).mean()) if a.shape == b.shape else 255.0
