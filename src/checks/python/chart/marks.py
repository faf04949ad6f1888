"""The marks of a record (bars, lines, points, wedges), each tied to a primitive of the redrawn picture.

A claimed mark counts when a primitive lies exactly where claimed data and claimed axes put it, when
taking the marks away changes the picture there (it is not hidden), and, for bars, when its color
ends where the bar ends.
"""

import numpy as np
from common import Unproven

from .redraw import BadRecord, array

NEAR = 0.06  # pixels: recorded coordinates are rounded to 0.001
SEEN = 10.0  # of 255
SAME = 6.0  # of 255


class Mark:
    """A mark and the primitives that draw it (a line and its markers are two)."""

    def __init__(self, numbers, points, box=None):
        self.numbers, self.points, self.box = numbers, points, box


class Marks:
    """All claimed marks of one axes."""

    def __init__(self, axes):
        self.axes, self.drawing = axes, axes.drawing
        self._paths = [(n, _vertices(op)) for n, op in enumerate(self.drawing.ops) if op["op"] in ("path", "markers")]
        self._offsets = [
            (n, array(op["offsets"], (None, 2))) for n, op in enumerate(self.drawing.ops) if op["op"] == "path_collection"
        ]

    def bars(self, group):
        """The rectangles of a container: claims [(x, y, width, height)], tied."""
        rects = array(group["rects"], (None, 4), 1e15)
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
        for number, vertices in self._paths:
            if vertices is None or not 4 <= len(vertices) <= 6 or self.drawing.ops[number]["op"] != "path":
                continue
            found = [vertices.min(axis=0), vertices.max(axis=0)]
            if np.abs(found[0] - low).max() <= NEAR and np.abs(found[1] - high).max() <= NEAR and self._painted(number, face):
                least = 0.1 if "hatch" in self.drawing.ops[number]["gc"] else 0.5
                return Mark([number], None, (low, high, value, corners[1, value] >= corners[0, value], least))
        raise Unproven("a claimed bar is not in the picture")

    def _painted(self, number, face):
        drawn = self.drawing.ops[number]["face"]
        return drawn is not None and np.abs(np.array(drawn[:3]) - array(face, (4,), 1.0)[:3]).max() <= 0.01

    def line(self, claim):
        """A line's data, tied to a path or to markers."""
        x, y = array(claim["x"], (None,), 1e15), array(claim["y"], (None,), 1e15)
        if len(x) != len(y):
            raise BadRecord("a line has unequal coordinates")
        places = self.axes.place(x, y)
        known = np.isfinite(places).all(axis=1)
        if not self.axes.inside(places[known], 1.5).all():
            raise Unproven("a line leaves the axes")
        wanted = places[known]
        numbers = [n for n, v in self._paths if v is not None and _equal(v, wanted, claim.get("steps"))]
        if not numbers:
            raise Unproven("a claimed line is not in the picture")
        return x, y, Mark(numbers, wanted)

    def points(self, claim):
        """A scatter's data, tied to a collection or to markers."""
        x, y = array(claim["x"], (None,), 1e15), array(claim["y"], (None,), 1e15)
        places = self.axes.place(x, y)
        known = np.isfinite(places).all(axis=1)
        if not self.axes.inside(places[known], 1.5).all():
            raise Unproven("a point lies outside the axes")
        drawn = self._offsets + [(n, v) for n, v in self._paths if v is not None]
        numbers = [n for n, v in drawn if _equal(v, places[known], False)]
        if not numbers:
            raise Unproven("the claimed points are not in the picture")
        return x, y, Mark(numbers, places[known])

    def wedge(self, claim):
        """A wedge, tied to a path."""
        from matplotlib.patches import Wedge

        center, theta = array(claim["center"], (2,), 1e3), array(claim["theta"], (2,), 1e6)
        shape = Wedge(center, float(claim["r"]), *theta, width=claim["width"])
        path = shape.get_path()
        vertices = shape.get_patch_transform().transform(path.vertices)
        places = self.axes.place(vertices[:, 0], vertices[:, 1])
        for number, found in self._paths:
            same = found is not None and found.shape == places.shape and np.abs(found - places).max() <= NEAR
            if same and self._painted(number, claim["face"]):
                return Mark([number], self._middle(center, claim, theta))
        raise Unproven("a claimed wedge is not in the picture")

    def _middle(self, center, claim, theta):
        inner = 0.0 if claim["width"] is None else claim["r"] - claim["width"]
        radii, angle = np.linspace(inner, claim["r"], 12)[2:-1], np.deg2rad(theta.mean())
        return self.axes.place(center[0] + radii * np.cos(angle), center[1] + radii * np.sin(angle))

    def visible(self, marks):
        """Every mark is seen in the redrawn picture, and every bar ends where it says."""
        whole = self.drawing.picture()
        bare = self.drawing.picture(without=frozenset(n for m in marks for n in m.numbers))
        seen = np.abs(whole - bare).max(axis=2) > SEEN
        for mark in marks:
            if mark.box is None:
                self._see_points(seen, mark.points)
        boxes = [m.box for m in marks if m.box is not None]
        for box in boxes:
            self._see_bar(seen, whole, box, boxes)

    def _see_points(self, seen, points):
        hits, reach = 0, 2 + round(self.drawing.dpi / 50)
        for x, y in points:
            row, column = int(self.drawing.height - y), int(x)
            hits += seen[max(row - reach, 0) : row + reach + 1, max(column - reach, 0) : column + reach + 1].any()
        # Dashes leave gaps, legends cover some, and thin marks lie beside their pixel.
        if hits < 0.75 * len(points):
            raise Unproven("claimed marks are hidden in the picture")

    def _see_bar(self, seen, whole, box, boxes):
        low, high, value, rising, least = box
        if high[value] - low[value] < 2:
            return  # nothing to see: the value is zero at this resolution
        body = self._cut(seen, low + 1, high - 1)
        if body.size and body.mean() < least:
            raise Unproven("a claimed bar is hidden in the picture")
        inner, outer = self._end(low, high, value, rising, -3.5, -1), self._end(low, high, value, rising, 2, 4.5)
        strip = self._cut(seen, *inner)
        if high[value] - low[value] >= 6 and strip.size and strip.mean() < least:
            raise Unproven("a claimed bar's end is hidden in the picture")
        # A hatched bar has no color of its own.
        if high[value] - low[value] < 6 or least < 0.5 or self._covered(outer, boxes):
            return
        color = np.median(self._cut(whole, *inner).reshape(-1, 3), axis=0)
        beyond = self._cut(whole, *outer).reshape(-1, 3)
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

    def _cut(self, image, low, high):
        height = self.drawing.height
        low, high = np.maximum(low, 0), np.maximum(high, 0)
        rows = slice(int(np.ceil(max(height - high[1], 0))), max(int(np.floor(height - low[1])), 0))
        return image[rows, int(np.ceil(low[0])) : int(np.floor(high[0]))]


def _vertices(op):
    vertices = array(op["path"]["v"], (None, 2))
    known = np.isfinite(vertices).all(axis=1)
    # A closing vertex repeats the first one, or is meaningless.
    return vertices[known] if known.any() else None


def _equal(found, wanted, steps):
    if len(wanted) == 0 or len(found) < len(wanted):
        return False
    if found.shape == wanted.shape:
        return bool(np.abs(found - wanted).max() <= NEAR)
    if not steps:
        return False
    return all(np.abs(found - place).max(axis=1).min() <= NEAR for place in wanted)
