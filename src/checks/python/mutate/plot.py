"""Forged charts: a picture that the record does not describe, or a record that the picture does not support."""

import base64
import copy
import json
import zlib

import numpy as np
from chart.redraw import Drawing
from checks.plot import _prove
from PIL import Image, ImageOps
from pictures import open_picture

from mutate import Mutant
from mutate.image import encode


def mutants(spec, names, candidate):
    path = spec["path"]
    image = open_picture(candidate, path)
    drawing, record = _prove(candidate, path, image)
    rgb = image.convert("RGB")
    others = [c for c in candidate.claims if c.get("figure") != record]
    yield Mutant("no record", claims=[])
    for name, picture in pictures(rgb, drawing):
        yield Mutant(name, {path: encode(picture, image.format)})
    for name, ops in forged(record, drawing):
        changed = pack(record, ops)
        yield Mutant(name, {path: encode(draw(changed), image.format)}, claims=[*others, {"path": path, "figure": changed}])
    for name, changed in tampered(record):
        yield Mutant(name, claims=[*others, {"path": path, "figure": changed}])


def pictures(rgb, drawing):
    """Other pictures under the same record."""
    yield "blank picture", Image.new("RGB", rgb.size, "white")
    noise = np.random.default_rng(0).integers(0, 256, (rgb.height, rgb.width, 3), dtype=np.uint8)
    yield "noise", Image.fromarray(noise)
    yield "mirrored", ImageOps.mirror(rgb)
    yield "upside down", ImageOps.flip(rgb)
    yield "inverted", ImageOps.invert(rgb)
    texts = {n for n, op in enumerate(drawing.ops) if op["op"] == "text"}
    yield "labels removed from the picture", _image(drawing.picture_without(texts))
    moved = np.roll(np.asarray(rgb), max(rgb.height // 30, 4), axis=0)
    yield "moved down", Image.fromarray(moved)


def forged(record, drawing):
    """Pictures and records that agree with each other, but show no data or hide them."""
    ops = drawing.ops
    yield "labels removed", [op for op in ops if op["op"] != "text"]
    box = max((a["box"] for a in record["axes"]), key=lambda b: (b[2] - b[0]) * (b[3] - b[1]))
    x0, y0, x1, y1 = box
    shape = {"v": [[x0, y0], [x1, y0], [x1, y1], [x0, y1], [x0, y0]], "c": [1, 2, 2, 2, 79]}
    yield "covered by a patch", [*ops, {"op": "path", "gc": {"rgb": [1, 1, 1, 1], "lw": 0}, "path": shape, "face": [1, 1, 1, 1]}]
    yield "nothing drawn", ops[:1]


def tampered(record):
    """Records that say something else than the picture."""
    changed = copy.deepcopy(record)
    for axes in changed["axes"]:
        for bars in axes["bars"]:
            bars["rects"] = [[x * 1.03, y * 1.03, w * 1.03, h * 1.03] for x, y, w, h in bars["rects"]]
        for marks in axes["lines"] + axes["points"]:
            marks["y"] = [None if v is None else v * 1.03 + 0.03 for v in marks["y"]]
        for wedge in axes["wedges"]:
            wedge["theta"] = [t * 0.97 + 3 for t in wedge["theta"]]
    yield "data changed in the record", changed
    yield "no data in the record", {**record, "axes": [{**a, "bars": [], "lines": [], "points": [], "wedges": []} for a in record["axes"]]}
    yield "primitives missing in the record", {**record, "ops": None}
    yield "record of another size", {**record, "width": record["width"] + 1}


def pack(record, ops):
    """The record with other primitives."""
    return {**record, "ops": base64.b64encode(zlib.compress(json.dumps(ops).encode())).decode()}


def draw(record):
    """The picture that a record describes."""
    return _image(Drawing(record).picture())


def _image(pixels):
    return Image.fromarray(np.clip(np.round(pixels), 0, 255).astype(np.uint8))
