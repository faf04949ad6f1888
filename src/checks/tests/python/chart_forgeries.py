"""Forged pictures and forged records, made from an honest pair."""

import base64
import copy
import json
import os
import random
import zlib

import numpy as np
from chart.redraw import Drawing
from PIL import Image


def unpack(record):
    return json.loads(zlib.decompress(base64.b64decode(record["ops"])))


def pack(record, ops):
    return {**record, "ops": base64.b64encode(zlib.compress(json.dumps(ops).encode())).decode()}


def run(folder, kind, expected, path, claim, case, way, verdict):
    """(name, outcome, detail) of every forgery that applies."""
    record = claim["figure"]
    full = os.path.join(folder, path)
    honest = open(full, "rb").read()

    def with_picture(image, claims, want=expected):
        image.save(full)
        try:
            return verdict(folder, kind, want, path, claims)
        finally:
            open(full, "wb").write(honest)

    size = Image.open(full).size
    yield "no claim", *verdict(folder, kind, expected, path, [])
    yield "blank picture", *with_picture(Image.new("RGB", size, "white"), [claim])
    noise = np.random.default_rng(1).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    yield "noise", *with_picture(Image.fromarray(noise), [claim])
    yield "mirrored picture", *with_picture(Image.open(full).convert("RGB").transpose(Image.Transpose.FLIP_LEFT_RIGHT), [claim])
    right = np.asarray(draw(record))
    for name, ops in pictures(kind, record):
        forged = draw(pack(record, ops))
        # What changes under other shapes, or outside the axes, changes no pixel and forges nothing.
        if np.array_equal(np.asarray(forged), right):
            yield name, "same picture", ""
        else:
            yield name, *with_picture(forged, [claim])
    for name, changed, want in tampered(kind, record, expected):
        yield name, *verdict(folder, kind, want, path, [{"path": path, "figure": changed}])
    for name, ops in hidden(kind, record):
        forged = pack(record, ops)
        yield name, *with_picture(draw(forged), [{"path": path, "figure": forged}])


def draw(record):
    return Image.fromarray(np.clip(np.round(Drawing(record).picture()), 0, 255).astype(np.uint8))


def box_of(record):
    return max((a["box"] for a in record["axes"]), key=lambda b: (b[2] - b[0]) * (b[3] - b[1]))


def data_ops(kind, record, ops):
    """Numbers of the primitives that carry the data."""
    axes = next(a for a in record["axes"] if a["bars"] or a["lines"] or a["points"] or a["wedges"])
    if kind == "scatter":
        counts = {len(p["x"]) for p in axes["points"]} | {len(line["x"]) for line in axes["lines"]}
        return [n for n, o in enumerate(ops) if len(o.get("offsets", o.get("path", {}).get("v", []))) in counts]
    if kind == "line":
        counts = {len(line["x"]) for line in axes["lines"] if line["line"]}
        return [n for n, o in enumerate(ops) if o["op"] in ("path", "markers") and len(o["path"]["v"]) in counts and len(o["path"]["v"]) > 2]
    if kind == "pie":
        return [n for n, o in enumerate(ops) if o["op"] == "path" and o["face"] and 4 in o["path"].get("c", [])][: len(axes["wedges"])]
    faces = [f for bar in axes["bars"] for f in bar["faces"]]
    return [n for n, o in enumerate(ops) if o["op"] == "path" and o["face"] in faces and 4 <= len(o["path"]["v"]) <= 6 and "rect" in o["gc"]]


def pictures(kind, record):
    """Pictures of other data; the claim stays right."""
    ops = unpack(record)
    numbers = data_ops(kind, record, ops)
    assert numbers, "no data found to forge"
    if kind in ("bar", "histogram"):
        yield from other_bars(record, ops, numbers)
    if kind in ("line", "scatter"):
        yield "one point moved by 3 %", moved(ops, numbers[-1], [0, 0.03 * (box_of(record)[3] - box_of(record)[1])], one=True)
        yield "all points moved", moved(ops, numbers[-1], [5, -7], one=False)
        other = copy.deepcopy(ops)
        for number in numbers:
            places = other[number]["offsets"] if "offsets" in other[number] else other[number]["path"]["v"]
            ys = [p[1] for p in places]
            random.Random(1).shuffle(ys)
            places[:] = [[p[0], y] for p, y in zip(places, ys)]
        yield "other data", other
    if kind == "pie":
        other = copy.deepcopy(ops)
        a, b = numbers[:2]
        other[a]["face"], other[b]["face"] = ops[b]["face"], ops[a]["face"]
        yield "two wedges' colors swapped", other
        other = copy.deepcopy(ops)
        middle = np.mean([v for v in ops[numbers[0]]["path"]["v"]], axis=0)
        for number in numbers:
            other[number]["path"]["v"] = [[2 * middle[0] - x, y] for x, y in ops[number]["path"]["v"]]
        yield "other data", other
    yield from other_texts(ops)


def other_bars(record, ops, numbers):
    horizontal = next(b["orientation"] for a in record["axes"] for b in a["bars"]) == "horizontal"
    value = 0 if horizontal else 1

    def stretch(ops, number, factor):
        vertices = ops[number]["path"]["v"]
        rects = [v[value] for v in vertices]
        base, end = min(rects, key=lambda v: abs(v - box_of(record)[value])), max(rects, key=lambda v: abs(v - box_of(record)[value]))
        ops[number]["path"]["v"] = [[base + (c - base) * factor if i == value and c == end else c for i, c in enumerate(v)] for v in vertices]

    heights = {n: np.ptp([v[value] for v in ops[n]["path"]["v"]]) for n in numbers}
    tallest = max(numbers, key=heights.get)
    for factor, name in ((1.03, "one bar 3 % longer"), (0.97, "one bar 3 % shorter")):
        other = copy.deepcopy(ops)
        stretch(other, tallest, factor)
        yield name, other
    other = copy.deepcopy(ops)
    for number in numbers:
        stretch(other, number, 0.6 + 0.1 * (number % 4))
    yield "other data", other


def moved(ops, number, by, one):
    other = copy.deepcopy(ops)
    places = other[number]["offsets"] if "offsets" in other[number] else other[number]["path"]["v"]
    chosen = [len(places) // 2] if one else range(len(places))
    for i in [i for i in chosen if None not in places[i]]:
        places[i] = [places[i][0] + by[0], places[i][1] + by[1]]
    return other


def other_texts(ops):
    texts = [n for n, o in enumerate(ops) if o["op"] == "text" and o["s"].strip()]
    pairs = [(a, b) for a, b in zip(texts, texts[1:]) if ops[a]["s"] != ops[b]["s"]]
    if pairs:
        a, b = pairs[0]
        other = copy.deepcopy(ops)
        other[a]["s"], other[b]["s"] = ops[b]["s"], ops[a]["s"]
        yield "two labels swapped in the picture", other
    yield "labels removed from the picture", [o for o in ops if o["op"] != "text"]


def tampered(kind, record, expected):
    """Records that say something else than the (honest) picture, with the reference to match."""
    if kind == "pie":
        changed = copy.deepcopy(record)
        wedges = next(a for a in changed["axes"] if a["wedges"])["wedges"]
        wedges[0]["label"], wedges[1]["label"] = wedges[1]["label"], wedges[0]["label"]
        labels = list(expected["labels"])
        labels[0], labels[1] = labels[1], labels[0]
        yield "labels swapped in the record", changed, {**expected, "labels": labels}
        return
    yield "data changed in the record", *scaled(record, expected, 1.03, axis=False)
    yield "axis rescaled in the record", *scaled(record, expected, 2.0, axis=True)
    changed, want = copy.deepcopy(record), copy.deepcopy(expected)
    axes = next(a for a in changed["axes"] if a["bars"] or a["lines"] or a["points"])
    names = [i for i, t in enumerate(axes["x"]["ticks"]) if not t[1].replace("\u2212", "-").strip("-").replace(".", "").isdigit()]
    if len(names) >= 2 and kind == "bar" and axes["bars"][0]["orientation"] != "horizontal":
        ticks = axes["x"]["ticks"]
        a, b = names[0], names[1]
        ticks[a][1], ticks[b][1] = ticks[b][1], ticks[a][1]
        for series in want:
            series["x"][0], series["x"][1] = series["x"][1], series["x"][0]
        yield "categories swapped in the record", changed, want


def scaled(record, expected, factor, axis):
    """The record with values (and the value axis) multiplied; the reference likewise."""
    changed, want = copy.deepcopy(record), copy.deepcopy(expected)
    for axes in changed["axes"]:
        horizontal = any(b["orientation"] == "horizontal" for b in axes["bars"])
        for bars in axes["bars"]:
            for rect in bars["rects"]:
                rect[2 if horizontal else 3] *= factor
                rect[0 if horizontal else 1] *= factor
        for marks in axes["lines"] + axes["points"]:
            marks["y"] = [None if v is None else v * factor for v in marks["y"]]
        if axis:
            side = axes["x" if horizontal else "y"]
            side["limits"] = [v * factor for v in side["limits"]]
            side["ticks"] = [[loc * factor, label] for loc, label in side["ticks"]]
    for series in want:
        series["y"] = [v * factor for v in series["y"]]
    return changed, want


def hidden(kind, record):
    """Right primitives that are not to be seen; the picture is drawn from the same primitives."""
    ops = unpack(record)
    yield "covered by a patch", ops + [patch(*box_of(record))]
    yield "transparent labels", [transparent(op) if op["op"] == "text" else op for op in ops]
    marks = set(data_ops(kind, record, ops))
    yield "labels under a patch", [*ops, patch(0, 0, record["width"], record["height"]), *(ops[n] for n in sorted(marks))]
    if kind != "pie":  # the first colored shapes of a pie may be its shadows
        yield "transparent marks", [transparent(op) if n in marks else op for n, op in enumerate(ops)]


def patch(x0, y0, x1, y1):
    """A white rectangle."""
    corners = [[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]]
    return {"op": "path", "gc": {"rgb": [1, 1, 1, 1], "lw": 0}, "path": {"v": corners, "c": [1, 2, 2, 2, 79]}, "face": [1, 1, 1, 1]}


def transparent(op):
    """A primitive as matplotlib draws it with `alpha=0`."""
    op = copy.deepcopy(op)
    op["gc"].update(rgb=[*op["gc"]["rgb"][:3], 0], alpha=0.0, forced=True)
    op["gc"].pop("hatch", None)
    if op.get("face"):
        op["face"][3] = 0
    for color in op.get("faces", []) + op.get("edges", []):
        color[3] = 0
    return op
