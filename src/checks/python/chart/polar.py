"""Polygons on polar axes, tied to the picture: labels on their rings prove the scale, a path in sight the radii."""

import numpy as np
from common import Unproven

from . import labels
from .axes import ANCHORS, Axis
from .marks import NEAR, Mark, Marks
from .redraw import array

TURNS = np.arange(8) * np.pi / 4  # the usual places of zero
INNER = 20.0  # pixels: within this radius a label stands on several rings
OFF = 2.0  # pixels by which a label may leave the others' distance from their rings


class PolarAxes:
    """Polar axes of a record."""

    def __init__(self, claim, drawing):
        self.claim, self.drawing = claim, drawing
        box = array(claim["box"], (4,), 1e5)
        self.center, radius = (box[:2] + box[2:]) / 2, (box[2] - box[0]) / 2
        self.radial = Axis("y", claim["y"], [0.0, 0.0, radius, radius], drawing)
        self.marks = Marks(self)

    def polygons(self):
        """(angles, radii) of every claimed line that the picture draws."""
        self._check_rings()
        tied = []
        for line in self.claim["lines"]:
            theta, r = array(line["x"], (None,), 1e6), array(line["y"], (None,), 1e12)
            if mark := self._tied(theta, r):
                tied.append((theta, r, mark))
        self.marks.visible([mark for _, _, mark in tied])
        return [(theta, r) for theta, r, _ in tied]

    def _check_rings(self):
        """The radial labels are numbers that agree with their places, and each is drawn on its ring."""
        if labels.numeric(self.radial.ticks, self.radial.offset) is not True:
            raise Unproven("the radial axis shows no numbers that agree with their places")
        self.radial.check_offset()
        rings = self.radial.pixels([loc for loc, _ in self.radial.ticks])
        wanted = [(ring, label) for ring, (_, label) in zip(rings, self.radial.ticks) if ring >= INNER]
        if len(wanted) < 2:
            raise Unproven("the radial axis shows fewer than two labels")
        if not any(self._on_rings(wanted, anchor) for anchor in ANCHORS):
            raise Unproven("the radial labels do not stand on their rings")

    def _on_rings(self, wanted, anchor):
        """Each label lies as far from its ring as the others, and near."""
        gaps, height = [], 0.0
        for ring, label in wanted:
            texts = [t for t in self.drawing.texts() if t.s == label]
            if not texts:
                raise Unproven(f"the radial label `{label[:40]}` is not in the picture")
            gaps.append(min((np.hypot(*(getattr(t, anchor) - self.center)) - ring for t in texts), key=abs))
            height = max(height, *(t.line_height for t in texts))
        middle = float(np.median(gaps))
        return max(abs(gap - middle) for gap in gaps) <= OFF and abs(middle) <= 0.75 * height + 12

    def _tied(self, theta, r):
        """The path, with its markers, whose vertices lie where angles and radii put them; None where there is none."""
        rho = self.radial.pixels(r)[:, None]
        for turn in TURNS:
            for way in (1, -1):
                places = self.center + np.column_stack([np.cos(turn + way * theta), np.sin(turn + way * theta)]) * rho
                numbers = [n for n, drawn in self.marks.paths if _same(drawn, places)]
                if any(self.drawing.ops[n]["op"] == "path" for n in numbers):
                    return Mark(numbers, _along(places))
        return None


def _same(drawn, places):
    return drawn is not None and drawn.shape == places.shape and np.abs(drawn - places).max() <= 2 * NEAR


def _along(places, steps=12):
    """Points on the edges between places."""
    share = np.arange(steps)[:, None] / steps
    edges = [a + (b - a) * share for a, b in zip(places, places[1:])]
    return np.concatenate([*edges, places[-1:]])
