"""Compares a chart read from a picture with the reference."""

import itertools

from chart.labels import plain, to_datetime
from common import Fail, OursError, close, numeric, scalar, short, text_form

MAX_SERIES = 60


def compare(spec, expected, chart):
    """Raise Fail where the chart is not the expected one."""
    _words(spec, chart)
    way = "horizontal" if chart.horizontal else "vertical"
    if spec.get("orientation") and way != spec["orientation"]:
        raise Fail(f"{spec['orientation']} bars expected, the picture shows {way} ones")
    if spec["kind"] == "pie":
        return _pie(spec, expected, chart.series[0])
    wanted = [_series(series) for series in ([expected] if isinstance(expected, dict) else expected)]
    found = chart.series
    same = {"bar": _same_bars, "line": _same_line, "scatter": _same_points, "histogram": _same_bins}[spec["kind"]]
    if len(wanted) == 1 and len(found) > 1 and spec["kind"] in ("bar", "scatter"):
        found = [_merged(found)]
    if len(wanted) != len(found):
        raise Fail(f"{len(wanted)} series expected, the picture shows {len(found)}")
    for want, got in _paired(wanted, found):
        same(spec, want, got, chart)


def _series(series):
    try:
        return {"name": series.get("name"), "x": list(series["x"]), "y": [scalar(v) for v in series["y"]]}
    except (KeyError, TypeError, AttributeError) as error:
        raise OursError(f"the reference's series is wrong: {error!r}") from None


def _merged(found):
    """Bars drawn one by one, or points by color, as one series."""
    pairs = sorted(zip(itertools.chain(*(s["at"] for s in found)), itertools.chain(*(s["x"] for s in found)), itertools.chain(*(s["y"] for s in found))), key=lambda p: p[0])  # fmt: skip
    return {"name": None, "at": [p[0] for p in pairs], "x": [p[1] for p in pairs], "y": [p[2] for p in pairs]}


def _paired(wanted, found):
    """Expected and shown series by name; a single one needs none."""
    if len(wanted) == 1:
        return [(wanted[0], found[0])]
    if all(w["name"] is None for w in wanted):
        return list(zip(wanted, found))
    named = {}
    for series in found:
        if series["name"] is not None:
            named.setdefault(_text(series["name"]), series)
    missing = [w["name"] for w in wanted if _text(w["name"]) not in named]
    if missing:
        raise Fail(f"no series is named {short(missing)} in the legend; it shows {short(sorted(named))}")
    return [(w, named[_text(w["name"])]) for w in wanted]


def _text(value):
    """A name as it is compared: whole numbers alike however written."""
    value = scalar(value)
    number = numeric(value.replace(",", "") if isinstance(value, str) else value)
    if number is not None:
        return f"{number:.12g}"
    return " ".join(plain(text_form(value)).split())


def _same_x(want, got, rtol, span):
    """One category, date or number equals another."""
    moment = to_datetime(want)
    if hasattr(got, "year"):
        return moment is not None and abs((got - moment).total_seconds()) < 86400 * 0.51
    want = scalar(want)
    if isinstance(got, str) or got is None:
        return got is not None and _text(got) == _text(want)
    number = numeric(want)
    return number is not None and close(got, number, rtol, 1e-6 * span)


def _span(values):
    numbers = [abs(v) for v in values if isinstance(v, (int, float))]
    return max(numbers, default=0.0)


def _same_bars(spec, want, got, chart):
    if len(want["x"]) != len(got["x"]):
        raise Fail(f"{len(want['x'])} bars expected, the picture shows {len(got['x'])}")
    span_x, span = _span(got["x"]), _span(want["y"])
    pairs = _as_read(list(zip(got["x"], got["y"])), chart)
    if spec.get("ordered"):
        if not _all_bars(spec, want, pairs, span_x, span):
            raise Fail(_first_bar(spec, want, pairs, span_x, span))
        return
    rest = list(pairs)
    for x, y in zip(want["x"], want["y"]):
        at = next((i for i, (gx, _) in enumerate(rest) if _same_x(x, gx, spec["rtol"], span_x)), None)
        if at is None:
            raise Fail(f"no bar stands at {short(x)}; the picture shows {short([p[0] for p in rest])}")
        gx, gy = rest.pop(at)
        if not close(gy, float(y), spec["rtol"], 1e-9 * span):
            raise Fail(f"the bar at {short(x)} is {gy:.6g}, expected {float(y):.6g}")


def _as_read(pairs, chart):
    """Bars from left to right or from top to bottom."""
    low, high = chart.x_axis.limits
    return pairs if (low < high) != chart.horizontal else pairs[::-1]


def _all_bars(spec, want, pairs, span_x, span):
    return all(
        _same_x(x, gx, spec["rtol"], span_x) and close(gy, float(y), spec["rtol"], 1e-9 * span)
        for x, y, (gx, gy) in zip(want["x"], want["y"], pairs)
    )


def _first_bar(spec, want, pairs, span_x, span):
    for x, y, (gx, gy) in zip(want["x"], want["y"], pairs):
        if not _same_x(x, gx, spec["rtol"], span_x):
            return f"{short(x)} expected next, the picture shows {short(gx)}"
        if not close(gy, float(y), spec["rtol"], 1e-9 * span):
            return f"the bar at {short(x)} is {gy:.6g}, expected {float(y):.6g}"
    return "the bars stand in another order"


def _same_line(spec, want, got, chart):
    pairs = [(x, float(y)) for x, y in zip(want["x"], want["y"]) if y is not None]
    if len(pairs) != len(got["y"]):
        raise Fail(f"a line of {len(pairs)} points expected, the picture shows {len(got['y'])}")
    names = all(isinstance(x, str) and to_datetime(x) is None and numeric(x) is None for x, _ in pairs)
    span_x, span = _span(got["at"]), _span([y for _, y in pairs])
    for i, ((x, y), gx, gy) in enumerate(zip(pairs, got["x"], got["y"])):
        # Category axes may label every nth place only: an unlabeled place still has its number.
        unlabeled = names and gx is None and got["at"][i] == i
        if not unlabeled and not _same_x(x, gx, spec["rtol"], span_x):
            raise Fail(f"point {i} of the line lies at {short(gx)}, expected {short(x)}")
        if not close(gy, y, spec["rtol"], 1e-9 * span):
            raise Fail(f"the line is {gy:.6g} at {short(x)}, expected {y:.6g}")


def _same_points(spec, want, got, chart):
    pairs = [(float(x), float(y)) for x, y in zip(map(scalar, want["x"]), want["y"]) if x is not None and y is not None]
    if len(pairs) != len(got["y"]):
        raise Fail(f"{len(pairs)} points expected, the picture shows {len(got['y'])}")
    spans = _span(got["at"]), _span(got["y"])
    wanted, found = (_in_order(points, spans[0]) for points in (pairs, zip(got["at"], got["y"])))
    for (x, y), (gx, gy) in zip(wanted, found):
        if not (close(gx, x, spec["rtol"], 1e-9 * spans[0]) and close(gy, y, spec["rtol"], 1e-9 * spans[1])):
            raise Fail(f"a point lies at ({gx:.6g}, {gy:.6g}), expected ({x:.6g}, {y:.6g})")


def _in_order(points, span):
    """Points by x, and by y where their x differ by rounding only."""
    points = sorted(points)
    starts = [i for i, (x, _) in enumerate(points) if i == 0 or x - points[i - 1][0] > 1e-9 * span]
    ends = [*starts[1:], len(points)]
    return [point for a, b in zip(starts, ends) for point in sorted(points[a:b], key=lambda point: point[1])]


def _same_bins(spec, want, got, chart):
    if len(want["y"]) != len(got["y"]):
        raise Fail(f"{len(want['y'])} bins expected, the picture shows {len(got['y'])}")
    span = _span(got["x"])
    for x, gx in zip(want["x"], got["x"]):
        if not close(gx, float(x), spec["rtol"], spec["rtol"] * span * 0.1):
            raise Fail(f"a bin edge lies at {gx:.6g}, expected {float(x):.6g}")
    for i, (y, gy) in enumerate(zip(want["y"], got["y"])):
        if not close(gy, float(y), spec["rtol"]):
            raise Fail(f"bin {i} holds {gy:.6g}, expected {float(y):.6g}")


def _pie(spec, expected, got):
    labels, values = [_text(v) for v in expected["labels"]], [float(v) for v in expected["values"]]
    if len(labels) != len(got["x"]):
        raise Fail(f"{len(labels)} wedges expected, the picture shows {len(got['x'])}")
    if None in got["x"]:
        raise Fail("a wedge has no label in the picture")
    shown = list(zip(map(_text, got["x"]), got["y"]))
    for i, (label, value) in enumerate(zip(labels, values)):
        found = [share for name, share in shown if name == label]
        if len(found) != 1:
            raise Fail(f"no wedge is labeled {short(label)}; the picture shows {short([n for n, _ in shown])}")
        if not close(found[0], value, spec["rtol"], spec["rtol"]):
            raise Fail(f"the wedge {short(label)} takes {found[0]:.4f}, expected {value:.4f}")
        if spec.get("ordered") and shown[i][0] != label:
            raise Fail(f"{short(label)} expected next, the picture shows {short(shown[i][0])}")


def _words(spec, chart):
    """Title and axis labels, read from the texts of the picture."""
    texts, box = chart.drawing.texts(), chart.axes.box
    above = " ".join(t.s for t in sorted(texts, key=lambda t: -t.center[1]) if t.center[1] > box[3] - 2)
    if spec.get("title") and _folded(spec["title"]) not in _folded(above):
        raise Fail(f"the title should contain {short(spec['title'])}, the picture shows {short(above)}")
    if spec.get("x_label"):
        beside = [t.s for t in texts if t.center[1] < box[1] or t.center[1] > box[3]]
        _label(spec["x_label"], chart.axes.x.label, beside, "x")
    if spec.get("y_label"):
        beside = [t.s for t in texts if t.center[0] < box[0] or t.center[0] > box[2]]
        _label(spec["y_label"], chart.axes.y.label, beside, "y")


def _label(wanted, claimed, drawn, axis):
    lines = [line for line in claimed.replace("\\$", "$").split("\n") if line]
    shown = claimed if lines and all(line in drawn for line in lines) else ""
    if _folded(wanted) not in _folded(shown):
        raise Fail(f"the {axis} axis should be labeled {short(wanted)}, the picture shows {short(shown)}")


def _folded(text):
    return " ".join(plain(str(text)).casefold().split())
