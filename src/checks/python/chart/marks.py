"""The marks of a record (bars, lines, points, wedges), each tied to a primitive of the redrawn picture.

A claimed mark counts when a primitive lies exactly where claimed data and claimed axes put it, when
taking the marks away changes the picture there (it is not hidden), when taking it alone away still
does in part (no other mark stands for it), and, for bars, when its color ends where the bar ends.
"""

import numpy as np
from common import Unproven

from .redraw import MAX_DATA, BadRecord, array
from .seen import apart

NEAR = 0.06  # pixels: recorded coordinates are rounded to 0.001
SEEN = 10.0  # of 255
SAME = 6.0  # of 255
OPEN = 0.75  # share of a line or of points in sight: dashes leave gaps, legends cover some
ALONE = 0.1  # share of a mark that no other mark hides
LEAST = 2.0  # pixels: a lower bar or a narrower wedge is not to be seen
EVERYWHERE = ((-np.inf, -np.inf), (np.inf, np.inf))


class Mark:
    """A mark and the primitives that draw it (a line and its markers are two)."""

    def __init__(self, numbers, points, box=None, extent=EVERYWHERE, slight=False):
        self.numbers, self.points, self.box = numbers, points, box
        self.low, self.high = extent  # pixels outside are the same without it
        self.slight = slight  # too small to be seen at this resolution


class Marks:
    """All claimed marks of one axes."""

    def __init__(self, axes):
        self.axes, self.drawing = axes, axes.drawing
        self.paths = [(n, vertices(op)) for n, op in enumerate(self.drawing.ops) if op["op"] in ("path", "markers")]
        self._offsets = [
            (n, array(op["offsets"], (None, 2))) for n, op in enumerate(self.drawing.ops) if op["op"] == "path_collection"
        ]

    def bars(self, group):
        """The rectangles of a container: claims [(x, y, width, height)], tied."""
        rects = array(group["rects"], (None, 4), MAX_DATA)
        if np.isnan(rects).any():
            raise BadRecord("a bar has no extent")
        horizontal = group["orientation"] == "horizontal"
        marks = [self._bar(rect, face, horizontal) for rect, face in zip(rects, group["faces"])]
        return rects, marks

    def _bar(self, rect, face, horizontal):
        x, y, w, h = rect
        corners = self.axes.place([x, x + w], [y, y + h])
        value = 0 if horizontal else 1
        if not self.axes.inside(corners[1:], 1.5).all():
            raise Unproven("a bar ends outside the axes")
        low, high = corners.min(axis=0), corners.max(axis=0)
        for number, drawn in self.paths:
            op = self.drawing.ops[number]
            if drawn is None or not 4 <= len(drawn) <= 6 or op["op"] != "path":
                continue
            found = [drawn.min(axis=0), drawn.max(axis=0)]
            if np.abs(found[0] - low).max() <= NEAR and np.abs(found[1] - high).max() <= NEAR and self._painted(number, face):
                least, edge = 0.1 if "hatch" in op["gc"] else 0.5, float(op["gc"]["lw"])
                box = (low, high, value, corners[1, value] >= corners[0, value], least)
                return Mark([number], None, box, (low - edge, high + edge), _height(box) < LEAST)
        raise Unproven("a claimed bar is not in the picture")

    def _painted(self, number, face):
        drawn = self.drawing.ops[number]["face"]
        return drawn is not None and np.abs(np.array(drawn[:3]) - array(face, (4,), 1.0)[:3]).max() <= 0.01

    def line(self, claim):
        """A line's data, tied to a path or to markers."""
        x, y = array(claim["x"], (None,), MAX_DATA), array(claim["y"], (None,), MAX_DATA)
        if len(x) != len(y):
            raise BadRecord("a line has unequal coordinates")
        places = self.axes.place(x, y)
        known = np.isfinite(places).all(axis=1)
        if not self.axes.inside(places[known], 1.5).all():
            raise Unproven("a line leaves the axes")
        wanted = places[known]
        numbers = [n for n, v in self.paths if v is not None and _equal(v, wanted, claim.get("steps"))]
        if not numbers:
            raise Unproven("a claimed line is not in the picture")
        return x, y, Mark(numbers, wanted)

    def points(self, claim):
        """A scatter's data, tied to a collection or to markers."""
        x, y = array(claim["x"], (None,), MAX_DATA), array(claim["y"], (None,), MAX_DATA)
        places = self.axes.place(x, y)
        known = np.isfinite(places).all(axis=1)
        if not self.axes.inside(places[known], 1.5).all():
            raise Unproven("a point lies outside the axes")
        drawn = self._offsets + [(n, v) for n, v in self.paths if v is not None]
        numbers = [n for n, v in drawn if _equal(v, places[known], False)]
        if not numbers:
            raise Unproven("the claimed points are not in the picture")
        return x, y, Mark(numbers, places[known])

    def wedge(self, claim):
        """A wedge, tied to a path."""
        from matplotlib.patches import Wedge

        center, theta = array(claim["center"], (2,), 1e3), array(claim["theta"], (2,), 1e6)
        shape = Wedge(center, float(claim["r"]), *theta, width=claim["width"])
        outline = shape.get_patch_transform().transform(shape.get_path().vertices)
        places = self.axes.place(outline[:, 0], outline[:, 1])
        for number, found in self.paths:
            same = found is not None and found.shape == places.shape and np.abs(found - places).max() <= NEAR
            if same and self._painted(number, claim["face"]):
                rim = np.deg2rad(abs(theta[1] - theta[0])) * np.ptp(places, axis=0).max() / 2
                return Mark([number], self._middle(center, claim, theta), slight=rim < LEAST)
        raise Unproven("a claimed wedge is not in the picture")

    def _middle(self, center, claim, theta):
        inner = 0.0 if claim["width"] is None else claim["r"] - claim["width"]
        radii, angle = np.linspace(inner, claim["r"], 12)[2:-1], np.deg2rad(theta.mean())
        return self.axes.place(center[0] + radii * np.cos(angle), center[1] + radii * np.sin(angle))

    def visible(self, marks):
        """Every mark is seen in the redrawn picture, and every bar ends where it says."""
        whole, seen = self.drawing.picture(), self._seen(marks)
        boxes = [m.box for m in marks if m.box is not None]
        if 0 < max((_height(box) for box in boxes), default=0) < LEAST:
            raise Unproven("the bars are too low to be seen")
        if any(m.box is None and self._share(seen, m) < OPEN for m in marks):
            raise Unproven("claimed marks are hidden in the picture")
        for box in boxes:
            self._see_bar(seen, whole, box, boxes)
        self._see_each(marks)

    def _seen(self, marks):
        """Where the picture changes without these marks."""
        return self.drawing.changed((n for m in marks for n in m.numbers), SEEN)

    def _see_each(self, marks):
        """Without any one of the marks the picture is another: none stands for a second one that is not to be seen."""
        groups = apart(marks)
        for group in groups if len(groups) > 1 else []:
            seen = self._seen(group)
            if any(not mark.slight and self._share(seen, mark) < ALONE for mark in group):
                raise Unproven("a claimed mark is hidden behind another one")

    def _share(self, seen, mark):
        """The share of a mark's points, or of a bar's body, that lies where the picture changes."""
        if mark.box is not None:
            body = self.drawing.cut(seen, mark.box[0] + 1, mark.box[1] - 1)
            return body.mean() if body.size else 1.0
        hits, reach = 0, 2 + round(self.drawing.dpi / 50)  # thin marks lie beside their pixel
        for x, y in mark.points:
            row, column = int(self.drawing.height - y), int(x)
            hits += seen[max(row - reach, 0) : row + reach + 1, max(column - reach, 0) : column + reach + 1].any()
        return hits / max(len(mark.points), 1)

    def _see_bar(self, seen, whole, box, boxes):
        low, high, value, rising, least = box
        if _height(box) < LEAST:
            return  # nothing to see: the value is zero at this resolution
        body = self.drawing.cut(seen, low + 1, high - 1)
        if body.size and body.mean() < least:
            raise Unproven("a claimed bar is hidden in the picture")
        inner, outer = self._end(low, high, value, rising, -3.5, -1), self._end(low, high, value, rising, 2, 4.5)
        strip = self.drawing.cut(seen, *inner)
        if high[value] - low[value] >= 6 and strip.size and strip.mean() < least:
            raise Unproven("a claimed bar's end is hidden in the picture")
        # A hatched bar has no color of its own.
        if high[value] - low[value] < 6 or least < 0.5 or self._covered(outer, boxes):
            return
        color = np.median(self.drawing.cut(whole, *inner).reshape(-1, 3), axis=0)
        beyond = self.drawing.cut(whole, *outer).reshape(-1, 3)
        if len(beyond) and (np.abs(beyond - color).max(axis=1) <= SAME).mean() > 0.5:
            raise Unproven("a bar goes on beyond its claimed end")

    def _end(self, low, high, value, rising, start, stop):
        """A strip at the bar's end, `start` to `stop` pixels beyond it."""
        low, high = low + 0.0, high + 0.0
        shrink = min(1.5, (high[1 - value] - low[1 - value]) / 4)
        low[1 - value] += shrink
        high[1 - value] -= shrink
        end = high[value] if rising else low[value]
        near, far = (end + start, end + stop) if rising else (end - stop, end - start)
        low[value], high[value] = near, far
        return low, high

    def _covered(self, outer, boxes):
        """Another bar stands on this one's end."""
        middle = (outer[0] + outer[1]) / 2
        return any((low - 1 <= middle).all() and (middle <= high + 1).all() for low, high, *_ in boxes)


def _height(box):
    low, high, value = box[:3]
    return high[value] - low[value]


def vertices(op):
    """The vertices of a path as drawn; None where it has none."""
    drawn = array(op["path"]["v"], (None, 2))
    known = np.isfinite(drawn).all(axis=1)
    # A closing vertex repeats the first one, or is meaningless.
    return drawn[known] if known.any() else None


def _equal(found, wanted, steps):
    if len(wanted) == 0 or len(found) < len(wanted):
        return False
    if found.shape == wanted.shape:
        return bool(np.abs(found - wanted).max() <= NEAR)
    if not steps:
        return False
    return all(np.abs(found - place).max(axis=1).min() <= NEAR for place in wanted)
