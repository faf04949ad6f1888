"""A proven record as a chart: series of named values, in reading order."""

import numpy as np
from chart.axes import Axes
from chart.labels import plain
from chart.marks import Marks
from common import Fail, Unproven

MAX_SERIES = 60


class Chart:
    """What the picture shows: `series` are dicts with `name`, `x`, `y`; x holds numbers or categories."""

    def __init__(self, axes, series, x_axis, y_axis, drawing, horizontal=False):
        self.axes, self.series, self.x_axis, self.y_axis = axes, series, x_axis, y_axis
        self.drawing, self.horizontal = drawing, horizontal


def chart(record, drawing, kind):
    """The one chart of that kind in the record."""
    claims = record["axes"]
    if not isinstance(claims, list) or len(claims) > 20:
        raise Unproven("the record has too many axes")
    key = {"bar": "bars", "histogram": "bars", "line": "lines", "scatter": "points", "pie": "wedges"}[kind]
    if kind == "scatter":
        holding = [c for c in claims if c["points"] or any(line["marker"] and not line["line"] for line in c["lines"])]
    elif kind == "line":
        holding = [c for c in claims if any(line["line"] and len(line["x"]) > 1 for line in c["lines"])]
    else:
        holding = [c for c in claims if c[key]]
    if not holding:
        raise Fail(f"the picture shows no {kind} chart")
    if len(holding) > 1:
        raise Fail(f"the picture shows {len(holding)} {kind} charts; one was expected")
    axes = Axes(holding[0], drawing)
    names = _Names(record, holding[0], drawing)
    return READ[kind](axes, holding[0], names)


class _Names:
    """Series names by color, from legends that the picture shows."""

    def __init__(self, record, claim, drawing):
        entries = (claim["legend"] + record.get("legend", []))[:MAX_SERIES]
        drawn = {t.s for t in drawing.texts()}
        self.entries = [e for e in entries if e["label"].split("\n")[0].replace("\\$", "$") in drawn]

    def of(self, label, color):
        """The legend's name for a series of that label and color; None where there is none."""
        labeled = [e for e in self.entries if e["label"] == label]
        if len(labeled) == 1 and (labeled[0]["color"] is None or _alike(labeled[0]["color"], color)):
            return label
        alike = [e["label"] for e in self.entries if e["color"] is not None and color is not None and _alike(e["color"], color)]
        return alike[0] if len(alike) == 1 else None


def _alike(a, b):
    return b is None or np.abs(np.array(a[:3], float) - np.array(b[:3], float)).max() <= 0.02


def _bars(axes, claim, names):
    marks, groups, tied = Marks(axes), claim["bars"], []
    horizontal = _orientation(groups)
    along, value = (axes.y, axes.x) if horizontal else (axes.x, axes.y)
    kind = along.kind()
    if value.kind() != "number":
        raise Unproven("the value axis shows no numbers")
    series = []
    for group in groups[:MAX_SERIES]:
        rects, found = marks.bars(group)
        tied += found
        position, size = (rects[:, 1], rects[:, 3]) if horizontal else (rects[:, 0], rects[:, 2])
        base, length = (rects[:, 0], rects[:, 2]) if horizontal else (rects[:, 1], rects[:, 3])
        if np.abs(base).max(initial=0) > 1e-9 * np.abs(length).max(initial=0):
            raise Unproven("bars that do not start at zero (stacked ones) are not checked: one may hide another")
        centers = position + size / 2
        order = np.argsort(centers, kind="stable")
        faces = {tuple(face) for face in group["faces"]}
        color = group["faces"][0] if len(faces) == 1 else None
        series.append(
            {
                "name": names.of(group["label"], color), "x": [_place(along, kind, centers[i]) for i in order],
                "at": centers[order].tolist(), "y": length[order].tolist(),
            }
        )  # fmt: skip
    marks.visible(tied)
    return Chart(axes, series, along, value, axes.drawing, horizontal)


def _orientation(groups):
    kinds = {group["orientation"] for group in groups}
    if len(kinds) != 1:
        raise Unproven("bars stand both ways")
    return kinds == {"horizontal"}


def _place(axis, kind, at):
    """The category at a place, with the place itself where the axis is numeric."""
    if kind == "category":
        return plain(axis.name_at(at))
    return axis.to_date(at) if kind == "date" else float(at)


def _histogram(axes, claim, names):
    if len(claim["bars"]) != 1:
        raise Fail(f"the picture shows {len(claim['bars'])} sets of bars; one histogram was expected")
    marks = Marks(axes)
    group = claim["bars"][0]
    horizontal = _orientation(claim["bars"])
    for axis in (axes.x, axes.y):
        if axis.kind() != "number":
            raise Unproven(f"the {axis.name} axis shows no numbers")
    rects, tied = marks.bars(group)
    marks.visible(tied)
    start, width, count = (1, 3, 2) if horizontal else (0, 2, 3)
    rects = rects[np.argsort(rects[:, start])]
    edges = _edges(rects[:, start], rects[:, width])
    gaps = np.abs(rects[1:, start] - (rects[:-1, start] + rects[:-1, width]))
    if len(gaps) and gaps.max() > 0.25 * rects[:, width].max():
        raise Fail("the bars of the histogram are not adjacent")
    along, value = (axes.y, axes.x) if horizontal else (axes.x, axes.y)
    return Chart(axes, [{"name": None, "x": edges.tolist(), "y": rects[:, count].tolist()}], along, value, axes.drawing, horizontal)


def _edges(starts, widths):
    """Bin edges; bars drawn narrower than their bins stand in the middle of them."""
    ends = starts + widths
    if len(starts) < 2 or np.abs(starts[1:] - ends[:-1]).max() <= 1e-6 * widths.max():
        return np.append(starts, ends[-1])
    inner = (starts[1:] + ends[:-1]) / 2
    gap = (starts[1] - ends[0]) / 2
    return np.concatenate([[starts[0] - gap], inner, [ends[-1] + gap]])


def _lines(axes, claim, names):
    marks, tied, series = Marks(axes), [], []
    kind = axes.x.kind()
    if axes.y.kind() != "number":
        raise Unproven("the y axis shows no numbers")
    for line in [c for c in claim["lines"] if c["line"]][:MAX_SERIES]:
        x, y, mark = marks.line(line)
        if _is_rule(x, y):
            continue
        tied.append(mark)
        known = np.isfinite(x) & np.isfinite(y)
        at = x[known].tolist()
        places = [_place(axes.x, kind, v) for v in at] if kind == "date" else at
        if kind == "category":
            places = [_name_or_none(axes.x, v) for v in at]
        series.append({"name": names.of(line["label"], line["color"]), "x": places, "at": at, "y": y[known].tolist()})
    if not series:
        raise Fail("the picture shows no line")
    marks.visible(tied)
    return Chart(axes, series, axes.x, axes.y, axes.drawing)


def _is_rule(x, y):
    """A straight rule from edge to edge is a guide, no data."""
    return len(x) == 2 and (x[0] == x[1] or y[0] == y[1])


def _name_or_none(axis, value):
    try:
        return plain(axis.name_at(value))
    except Unproven:
        return None


def _scatter(axes, claim, names):
    marks, tied, series = Marks(axes), [], []
    kinds = [axis.kind() for axis in (axes.x, axes.y)]
    if kinds[1] != "number" or kinds[0] == "category":
        raise Unproven("the axes of the scatter plot show no numbers")
    for claimed in claim["points"][:MAX_SERIES]:
        x, y, mark = marks.points(claimed)
        tied.append(mark)
        series += _by_color(claimed, x, y, names)
    for line in [c for c in claim["lines"] if c["marker"] and not c["line"]][:MAX_SERIES]:
        x, y, mark = marks.line(line)
        tied.append(mark)
        series.append(_points(names.of(line["label"], line["face"]), x, y))
    marks.visible(tied)
    return Chart(axes, series, axes.x, axes.y, axes.drawing)


def _points(name, x, y):
    known = np.isfinite(x) & np.isfinite(y)
    return {"name": name, "x": x[known].tolist(), "at": x[known].tolist(), "y": y[known].tolist()}


def _by_color(claimed, x, y, names):
    """One series, or one per color where a legend names the colors of one collection."""
    faces = claimed["faces"]
    colors = sorted({tuple(face) for face in faces})
    found = {color: names.of(None, color) for color in colors}
    if len(faces) != len(x) or len(colors) < 2 or None in found.values():
        return [_points(names.of(claimed["label"], faces[0] if len(colors) == 1 else None), x, y)]
    mask = {color: np.array([tuple(face) == color for face in faces]) for color in colors}
    return [_points(found[color], x[mask[color]], y[mask[color]]) for color in colors]


def _pie(axes, claim, names):
    marks, tied, slices = Marks(axes), [], []
    for wedge in claim["wedges"][:MAX_SERIES]:
        mark = marks.wedge(wedge)
        if any(mark.numbers == m.numbers for m in tied):
            raise Unproven("two wedges are claimed for one in the picture")
        tied.append(mark)
        low, high = sorted(wedge["theta"])
        slices.append((_wedge_name(axes, wedge, names), (high - low) / 360.0))
    marks.visible(tied)
    series = [{"name": None, "x": [name for name, _ in slices], "y": [share for _, share in slices]}]
    return Chart(axes, series, axes.x, axes.y, axes.drawing)


def _wedge_name(axes, wedge, names):
    """The label beside a wedge, or the legend's name for its color."""
    center = np.array(wedge["center"], float)
    middle = axes.place(*[[v] for v in center])[0]
    rim = axes.place([center[0] + wedge["r"]], [center[1]])[0]
    radius = abs(rim[0] - middle[0])
    angle = np.deg2rad(np.mean(wedge["theta"]))
    direction = np.array([np.cos(angle), np.sin(angle)])
    label = wedge["label"].split("\n")[0].replace("\\$", "$")
    for text in axes.drawing.texts():
        if text.s != label:
            continue
        # The nearest part of the label lies in the wedge's direction, close to the rim or within.
        nearest = np.clip(middle + direction * radius * 1.05, text.low, text.high)
        if np.linalg.norm(nearest - (middle + direction * radius * 1.05)) <= 0.3 * radius:
            return plain(wedge["label"])
    return names.of(wedge["label"], wedge["face"])


READ = {"bar": _bars, "histogram": _histogram, "line": _lines, "scatter": _scatter, "pie": _pie}
