"""The axes of a record, tied to the picture: where a data value lies, and what its ticks say."""

import datetime

import numpy as np
from common import Unproven

from . import labels
from .redraw import MAX_DATA, BadRecord, array

SCALES = ("linear",)
ANCHORS = ("center", "left", "right")


class Axis:
    """One axis: data → pixels, and its labels where the picture shows them."""

    def __init__(self, name, claim, box, drawing):
        self.name, self.index = name, "xy".index(name)
        self.limits = [float(v) for v in array(claim["limits"], (2,), MAX_DATA)]
        self.scale = claim["scale"]
        self.low, self.high = box[self.index], box[self.index + 2]
        self.label, self.freq = str(claim["label"]), claim.get("freq")
        self.offset = str(claim.get("offset", ""))
        if self.limits[0] == self.limits[1]:
            raise BadRecord(f"the {name} axis has no extent")
        ticks = claim["ticks"]
        if not isinstance(ticks, list) or len(ticks) > 1000:
            raise BadRecord("the ticks are out of bounds")
        self.ticks = [(float(loc), str(label)) for loc, label in ticks]
        self.drawing, self.box = drawing, box

    def pixels(self, values):
        """Pixels of data values."""
        if self.scale not in SCALES:
            raise Unproven(f"the {self.name} axis has a {self.scale} scale, which is not checked")
        values, (a, b) = np.asarray(values, dtype=float), self.limits
        return self.low + (values - a) / (b - a) * (self.high - self.low)

    def kind(self):
        """`number`, `date` or `category`; each only when labels drawn at the ticks say so."""
        if not self.ticks:
            raise Unproven(f"the {self.name} axis shows no tick labels")
        self._check_places()
        agrees = labels.numeric(self.ticks, self.offset)
        if agrees:
            self.check_offset()
            return "number"
        dates = labels.dates(self.ticks, self.offset, self.to_date)
        if dates:
            self.check_offset()
            return "date"
        if agrees is False and self._evenly_numbered():
            return "category"
        if agrees is False:
            raise Unproven(f"the {self.name} axis' labels do not agree with their places")
        return "category"

    def _evenly_numbered(self):
        """Numbers as names: one label at each of 0, 1, 2, … (a bar chart over years, for instance)."""
        return all(loc == int(loc) and loc >= 0 for loc, _ in self.ticks) and len(set(self.ticks)) == len(self.ticks)

    def to_date(self, value):
        """The date at a place of a date axis."""
        if self.freq:
            import pandas

            return pandas.Period(ordinal=int(round(value)), freq=str(self.freq)[:10]).start_time.to_pydatetime()
        return datetime.datetime(1970, 1, 1) + datetime.timedelta(days=float(value))

    def from_date(self, moment):
        """The place of a date."""
        if self.freq:
            import pandas

            return float(pandas.Period(moment, freq=str(self.freq)[:10]).ordinal)
        return (moment - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1)

    def name_at(self, value):
        """The category whose label stands nearest to a place."""
        locs = sorted({loc for loc, _ in self.ticks})
        spacing = min(np.diff(locs), default=1.0)
        loc, label = min(self.ticks, key=lambda tick: abs(tick[0] - value))
        if abs(loc - value) > 0.5 * spacing + 1e-9:
            raise Unproven(f"no label stands at {self.name} = {value:g}")
        return label

    def check_offset(self):
        """What the labels leave out (`1e6`) is in the picture."""
        if labels.plain(self.offset) and not any(t.s == self.offset for t in self.drawing.texts()):
            raise Unproven(f"the {self.name} axis' offset is not in the picture")

    def _check_places(self):
        """Each label stands beside its tick, all aligned the same way."""
        places = self.pixels([loc for loc, _ in self.ticks])
        found = [self._candidates(label) for _, label in self.ticks]
        for (_, label), texts in zip(self.ticks, found):
            if not texts:
                raise Unproven(f"the {self.name} tick label `{label[:40]}` is not in the picture")
        spacing = min(np.diff(np.unique(places)), default=40.0)
        for anchor in ANCHORS:
            gaps = [self._gap(texts, place, anchor) for texts, place in zip(found, places)]
            middle = float(np.median(gaps))
            height = max(t.line_height for texts in found for t in texts)
            aligned = max(abs(g - middle) for g in gaps) <= max(1.5, 0.25 * spacing)
            if aligned and abs(middle) <= 0.75 * height + 12:
                return
        raise Unproven(f"the {self.name} tick labels do not stand at their ticks")

    def _candidates(self, label):
        """Where a label's first line stands, if the picture shows one of its lines: the last ones may lie outside."""
        lines, texts = label.replace("\\$", "$").split("\n"), self.drawing.texts()
        if not any(t.s in lines for t in texts if t.s.strip()):
            return []
        return [t for t in texts if t.s == lines[0] and self._outside(t)]

    def _outside(self, text):
        """Beside the axes box, where tick labels stand."""
        other = 1 - self.index
        low, high = self.box[other], self.box[other + 2]
        return text.center[other] < low + 2 or text.center[other] > high - 2

    def _gap(self, texts, place, anchor):
        gaps = [getattr(t, anchor)[self.index] - place for t in texts]
        return min(gaps, key=abs)


class Axes:
    """One coordinate system of a record."""

    def __init__(self, claim, drawing):
        self.claim, self.drawing = claim, drawing
        self.box = [float(v) for v in array(claim["box"], (4,), 1e5)]
        if self.box[2] - self.box[0] < 20 or self.box[3] - self.box[1] < 20:
            raise Unproven("the axes are too small to read")
        self.polar = claim.get("name") != "rectilinear"
        self.x, self.y = (Axis(name, claim[name], self.box, drawing) for name in "xy")

    def place(self, x, y):
        """Data → pixel pairs."""
        if self.polar:
            raise Unproven("axes that are not rectangular are not checked")
        return np.column_stack([self.x.pixels(x), self.y.pixels(y)])

    def inside(self, points, slack=1.0):
        """Which pixel pairs lie in the axes box."""
        low, high = np.array(self.box[:2]) - slack, np.array(self.box[2:]) + slack
        return ((points >= low) & (points <= high)).all(axis=1)
