"""Every chart that a picture shows, whatever its kind, read from its proven record."""

import numpy as np
from chart.axes import Axes
from chart.marks import Marks
from chart.polar import PolarAxes
from chart.redraw import BadRecord
from checks.plot import _picture, _prove
from common import Fail, Unproven, close, numeric, scalar
from plots import read
from plots.compare import _merged, _same_x, _text

DAMAGED = (BadRecord, Fail, Unproven, KeyError, TypeError, ValueError, AttributeError, IndexError)


class Shown:
    """The charts of one picture: `charts` are (axes number, kind, plots.read.Chart); `texts` what is written."""

    def __init__(self, record, drawing):
        self.record, self.drawing = record, drawing
        self.texts = [t.s for t in drawing.texts()]
        self.charts, self.why = [], []
        for number, claim in enumerate(record["axes"]):
            for kind in read.READ:
                try:
                    self.charts.append((number, kind, read.chart({**record, "axes": [claim]}, drawing, kind)))
                except DAMAGED as error:
                    self.why.append(f"{kind}: {error}")

    def need(self, holds, what):
        """Fail where nothing shows it, with why charts were not readable."""
        if not holds:
            raise Fail(f"the picture does not show {what}; read: {[(n, k) for n, k, _ in self.charts]}; {'; '.join(self.why)[:200]}")

    def titled(self, *words):
        """Whether the words stand in the picture, without regard to case."""
        text = " ".join(self.texts).casefold()
        return all(word.casefold() in text for word in words)

    def box(self, number):
        """(left, bottom, right, top) of an axes in pixels from the lower left corner."""
        return self.record["axes"][number]["box"]

    def heading(self, number, *words):
        """Whether the words stand above this axes."""
        left, _, right, top = self.box(number)
        above = [t.s for t in self.drawing.texts() if t.center[1] > top - 2 and left <= t.center[0] <= right]
        return all(word.casefold() in " ".join(above).casefold() for word in words)

    def radial(self, number):
        """The limits of polar axes, which their polygons prove."""
        return [float(v) for v in self.record["axes"][number]["y"]["limits"]]

    def of(self, *kinds):
        """(axes number, chart) of these kinds."""
        return [(n, c) for n, k, c in self.charts if k in kinds]

    def series(self, *kinds):
        """Every series of these kinds."""
        return [s for _, c in self.of(*kinds) for s in c.series]

    def bars(self, values, rtol=1e-3, part=1.0):
        """The number of the axes whose bars stand at these names with these heights; None if none does."""
        for number, chart in self.of("bar"):
            for series in [*chart.series, _merged(chart.series)]:
                if _named(series, values, rtol) >= part * len(values) and len(series["x"]) <= 1.5 * len(values):
                    return number
        return None

    def line(self, y, x=None, rtol=1e-3):
        """The number of the axes with a line through these values."""
        span = max(map(abs, y), default=0.0)
        for number, chart in self.of("line"):
            for series in chart.series:
                same = len(series["y"]) == len(y) and all(close(a, b, rtol, 1e-6 * span) for a, b in zip(series["y"], y))
                if same and (x is None or _places(series, x, rtol)):
                    return number
        return None

    def points(self, x, y, rtol=1e-3):
        """The number of the axes with these points, of one series or all together."""
        wanted = sorted(zip(map(float, x), map(float, y)))
        spans = [max((abs(v) for v in values), default=0.0) for values in zip(*wanted)]
        for number, chart in self.of("scatter"):
            every = sorted((a, b) for s in chart.series for a, b in zip(s["at"], s["y"]))
            for found in [every, *(sorted(zip(s["at"], s["y"])) for s in chart.series)]:
                if len(found) == len(wanted) and all(
                    close(a, c, rtol, 1e-6 * spans[0]) and close(b, d, rtol, 1e-6 * spans[1]) for (a, b), (c, d) in zip(found, wanted)
                ):
                    return number
        return None

    def clusters(self, rows):
        """Fail unless about so many points stand in two colors or more that lie apart, perhaps with a center for each color."""
        for number, _ in self.of("scatter"):
            points, colors = self._colored_points(number)
            sizes = {color: colors.count(color) for color in set(colors)}
            centers = sum(n for n in sizes.values() if n == len(points) - rows and n <= 12)
            if not 50 <= len(points) - centers <= rows or not 2 <= len(sizes) <= 15:
                continue
            xy = np.array(points, float)
            spread = xy.std(axis=0)
            xy = xy / np.where(spread > 0, spread, 1)
            labels = np.array([sorted(sizes).index(color) for color in colors])
            around = [np.linalg.norm(xy[labels == k] - xy[labels == k].mean(axis=0), axis=1).mean() for k in range(len(sizes))]
            within = sum(distance * (labels == k).mean() for k, distance in enumerate(around))
            whole = np.linalg.norm(xy - xy.mean(axis=0), axis=1).mean()
            if within < 0.92 * whole:
                if len(set(points)) <= 0.5 * len(points):
                    raise Fail("most points lie upon each other")
                return
        self.need(False, f"about {rows} points in two colors or more that lie apart")

    def _colored_points(self, number):
        """The points of an axes, and the color of each."""
        points, colors = [], []
        for item in self.record["axes"][number]["points"]:
            faces = item["faces"]
            for at, (x, y) in enumerate(zip(item["x"], item["y"])):
                if x is not None and y is not None:
                    points.append((x, y))
                    colors.append(tuple(np.round(faces[at if len(faces) == len(item["x"]) else 0], 2)))
        return points, colors

    def pie(self, shares, atol=0.005):
        """The number of the axes whose wedges have these names and shares of the whole."""
        for number, chart in self.of("pie"):
            series = chart.series[0]
            found = {_text(str(n).split("\n")[0].split(" (")[0]): y for n, y in zip(series["x"], series["y"]) if n is not None}
            total = sum(series["y"])
            if len(series["y"]) == len(shares) and abs(total - 1) < 0.01 and all(_text(k) in found and abs(found[_text(k)] - v) <= atol for k, v in shares.items()):
                return number
        return None

    def polar(self):
        """Polygons on polar axes: [(axes number, angles, radii)], each tied to a primitive in sight."""
        out = []
        for number, claim in enumerate(self.record["axes"]):
            if claim["name"] != "polar":
                continue
            try:
                out += [(number, *polygon) for polygon in PolarAxes(claim, self.drawing).polygons()]
            except DAMAGED as error:
                self.why.append(f"polar: {error}")
        return out

    def levels(self):
        """Values of level strokes (the medians and means of boxes): {axes number: [(x, y)]}, each tied and in sight."""
        out = {}
        for number, claim in enumerate(self.record["axes"]):
            try:
                axes = Axes(claim, self.drawing)
                marks = Marks(axes)
                axes.y.kind()
            except DAMAGED:
                continue
            for line in claim["lines"]:
                try:
                    x, y, mark = marks.line(line)
                    if np.ptp(y) > 0:
                        continue
                    marks.visible([mark])
                except DAMAGED:
                    continue
                out.setdefault(number, []).append((float(np.mean(x)), float(y[0])))
        return out


def _named(series, values, rtol):
    """How many of the wanted bars stand there."""
    span = max((abs(v) for v in values.values()), default=0.0)
    hits = 0
    for name, value in values.items():
        hits += any(_same_x(name, x, 1e-6, 1.0) and close(y, float(value), rtol, 1e-6 * span) for x, y in zip(series["x"], series["y"]))
    return hits


def _places(series, x, rtol):
    span = max((abs(numeric(scalar(v)) or 0.0) for v in x), default=0.0)
    known = [(a, b) for a, b in zip(series["x"], x) if a is not None]
    return all(_same_x(want, got, rtol, span) for got, want in known)


def charts(candidate, path):
    """The charts of a picture whose record is proven."""
    drawing, record = _prove(candidate, path, _picture(candidate, path))
    return Shown(record, drawing)


def displayed(candidate):
    """Charts that were displayed and left no file: each record is read as it draws itself."""
    from chart.redraw import Drawing

    out = []
    for claim in [c for c in candidate.claims if isinstance(c, dict) and isinstance(c.get("figure"), dict)][-6:]:
        record = claim["figure"]
        try:
            if not record.get("unsupported") and "axes" in record:
                out.append(Shown(record, Drawing(record)))
        except DAMAGED:
            continue
    return out
