"""Draws a recorded figure again with our own matplotlib, primitive by primitive.

A record comes from the sandboxed process: every count, size and coordinate is bounded before it
reaches the renderer.
"""

import base64
import json
import zlib

import matplotlib

matplotlib.use("agg")
import numpy as np
from matplotlib import transforms
from matplotlib.backend_bases import GraphicsContextBase
from matplotlib.backends.backend_agg import RendererAgg
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path

from . import seen
from .rc import settings

MAX_SIDE = 6000
MAX_PIXELS = 16_000_000
MAX_OPS = 5000
MAX_DATA = 1e100  # data values, such as unsigned 64-bit integers; their squares are still finite
MAX_TEXT = 24_000_000  # characters of unpacked primitives
IDENTITY = transforms.IdentityTransform()


class BadRecord(Exception):
    """The record is not one that our recorder could have made."""


class Drawing:
    """The primitives of a record, and the pictures that come of them."""

    def __init__(self, record):
        self.width, self.height = _integer(record.get("width"), MAX_SIDE), _integer(record.get("height"), MAX_SIDE)
        if self.width * self.height > MAX_PIXELS:
            raise BadRecord("the recorded picture is too large")
        self.dpi = _number(record.get("dpi"), 1, 2000)
        self.rc = settings(record.get("rc"))
        self.ops = _unpack(record.get("ops"))
        self.renderer = RendererAgg(self.width, self.height, self.dpi)
        self._texts = self._whole = None
        # By number, made once: the renderer knows the last clip path by its address, and one that is freed would be
        # taken for the next.
        self._contexts = {}

    def picture(self):
        """RGB on white, as floats."""
        if self._whole is None:
            self._whole = self.picture_without(())
        return self._whole

    def changed(self, numbers, by):
        """Where the picture differs by more than `by` (of 255) without these primitives."""
        return np.abs(self.picture() - self.picture_without(numbers)).max(axis=2) > by

    def picture_without(self, numbers):
        """The picture with these primitives, by number, left out."""
        without = frozenset(numbers)
        with matplotlib.rc_context(self.rc):
            self.renderer.clear()
            for number, op in enumerate(self.ops):
                if number not in without:
                    if number not in self._contexts:
                        self._contexts[number] = _context(op)
                    DRAW[op["op"]](self.renderer, self._contexts[number], op)
            rgba = np.asarray(self.renderer.buffer_rgba()).astype(float)
        return on_white(rgba)

    def ink(self, numbers):
        """How much of each pixel these texts cover (of 255) where nothing hides or cuts them."""
        with matplotlib.rc_context(self.rc):
            self.renderer.clear()
            for number in numbers:
                _draw_text(self.renderer, GraphicsContextBase(), self.ops[number])
            return np.asarray(self.renderer.buffer_rgba())[..., 3].copy()

    def cut(self, image, low, high):
        """The part of an image between two corners in pixels, y upwards."""
        low, high = np.maximum(low, 0), np.maximum(high, 0)
        rows = slice(int(np.ceil(max(self.height - high[1], 0))), max(int(np.floor(self.height - low[1])), 0))
        return image[rows, int(np.ceil(low[0])) : int(np.floor(high[0]))]

    def texts(self):
        """Every text that the picture shows, with its place."""
        if self._texts is None:
            with matplotlib.rc_context(self.rc):
                recorded = [Text(self, n, op) for n, op in enumerate(self.ops) if op["op"] == "text"]
            self._texts = seen.texts(self, recorded)
        return self._texts


class Text:
    """A line of text in the picture: its box in pixels, y upwards."""

    def __init__(self, drawing, number, op):
        self.number, self.s, self.color = number, op["s"], op["gc"]["rgb"]
        self.angle = _number(op["angle"], -1e4, 1e4)
        w, h, d = drawing.renderer.get_text_width_height_descent(_string(op["s"]), _font(op), bool(op["math"]))
        x, y = _number(op["x"], -1e5, 1e5), drawing.height - _number(op["y"], -1e5, 1e5)
        turn = np.deg2rad(self.angle)
        matrix = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
        place = lambda px, py: matrix @ np.array([px, py]) + (x, y)  # noqa: E731
        mid = h / 2 - d
        corners = np.array([place(0, -d), place(w, -d), place(0, h - d), place(w, h - d)])
        self.left, self.center, self.right = place(0, mid), place(w / 2, mid), place(w, mid)
        self.low, self.high, self.line_height = corners.min(axis=0), corners.max(axis=0), h


def on_white(rgba):
    """RGBA (0..255) over white, as RGB floats."""
    alpha = rgba[..., 3:4] / 255.0
    return rgba[..., :3] * alpha + 255.0 * (1 - alpha)


def _unpack(packed):
    if not isinstance(packed, str) or len(packed) > 2_200_000:
        raise BadRecord("the record holds no primitives")
    inflater = zlib.decompressobj()
    raw = inflater.decompress(base64.b64decode(packed), MAX_TEXT)
    if inflater.unconsumed_tail:
        raise BadRecord("the record is too large")
    ops = json.loads(raw)
    if not isinstance(ops, list) or len(ops) > MAX_OPS or not all(isinstance(op, dict) for op in ops):
        raise BadRecord("the record's primitives are no list")
    if not all(op.get("op") in DRAW and isinstance(op.get("gc"), dict) for op in ops):
        raise BadRecord("the record holds an unknown primitive")
    return ops


def _integer(value, most):
    if not isinstance(value, int) or not 0 < value <= most:
        raise BadRecord("a size is out of bounds")
    return value


def _number(value, low, high):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise BadRecord(f"the number {str(value)[:20]} is out of bounds")
    return float(value)


def _string(value):
    if not isinstance(value, str) or len(value) > 2000:
        raise BadRecord("a text is out of bounds")
    return value


def array(value, shape, bound=1e6):
    """A float array of that shape (None: any length); None becomes NaN."""
    out = np.array(value, dtype=float)
    if out.size == 0:
        out = out.reshape([0 if n is None else n for n in shape])
    fits = out.ndim == len(shape) and all(n is None or n == m for n, m in zip(shape, out.shape))
    if not fits or out.size > 500_000 or np.nanmax(np.abs(out), initial=0) > bound:
        raise BadRecord("an array is out of bounds")
    return out


def _path(value, bound=1e6):
    codes = value.get("c")
    vertices = array(value["v"], (None, 2), bound)
    if codes is not None:
        codes = np.array(codes, dtype=np.uint8)
        if codes.shape != (len(vertices),) or not np.isin(codes, (0, 1, 2, 3, 4, 79)).all():
            raise BadRecord("a path has wrong codes")
    path = Path(vertices, codes)
    path.should_simplify = "s" in value
    if "s" in value:
        path.simplify_threshold = _number(value["s"], 0, 1)
    return path


def _color(value):
    return None if value is None else tuple(float(c) for c in array(value, (4,), 1.0))


def _colors(value):
    return array(value, (None, 4), 1.0)


def _context(op):
    value, gc = op["gc"], GraphicsContextBase()
    gc._rgb = _color(value["rgb"])
    gc._alpha, gc._forced_alpha = _number(value.get("alpha", 1.0), 0, 1), bool(value.get("forced"))
    gc.set_linewidth(_number(value["lw"], 0, 2000))
    gc.set_antialiased(bool(value.get("aa", True)))
    gc.set_capstyle(value.get("cap", "butt"))
    gc.set_joinstyle(value.get("join", "round"))
    gc.set_snap(value.get("snap"))
    if "dash" in value:
        gc._dashes = _dashes(value["dash"])
    if "rect" in value:
        gc.set_clip_rectangle(transforms.Bbox(array(value["rect"], (4,)).reshape(2, 2)))
    if "clip" in value:
        gc.set_clip_path(transforms.TransformedPath(_path(value["clip"]), IDENTITY))
    if "hatch" in value:
        pattern, color, width = value["hatch"]
        gc.set_hatch(_string(pattern)[:20])
        gc._hatch_color, gc._hatch_linewidth = _color(color), _number(width, 0, 100)
    if "sketch" in value:
        gc.set_sketch_params(*array(value["sketch"], (3,), 1e4))
    return gc


def _dashes(value):
    offset, dashes = value
    if dashes is None:
        return 0, None
    dashes = array(dashes, (None,), 1e5)
    if len(dashes) > 50 or dashes.sum() < 0.05 or dashes.min() < 0:
        raise BadRecord("a dash pattern is out of bounds")
    return _number(offset, -1e5, 1e5), dashes.tolist()


def _font(op):
    family, style, variant, weight, stretch = op["font"]
    size = _number(op["size"], 0.1, 400)
    return FontProperties([_string(f) for f in family[:40]], style, variant, weight, stretch, size)


def _draw_path(renderer, gc, op):
    renderer.draw_path(gc, _path(op["path"]), IDENTITY, _color(op["face"]))


def _draw_text(renderer, gc, op):
    if len(_string(op["s"])) * op["size"] > 40_000:
        raise BadRecord("a text is out of bounds")
    x, y = _number(op["x"], -1e5, 1e5), _number(op["y"], -1e5, 1e5)
    renderer.draw_text(gc, x, y, op["s"], _font(op), _number(op["angle"], -1e4, 1e4), ismath=bool(op["math"]))


def _draw_markers(renderer, gc, op):
    renderer.draw_markers(gc, _path(op["marker"], 5e3), IDENTITY, _path(op["path"]), IDENTITY, _color(op["face"]))


def _matrix(six):
    return np.vstack([array(six, (6,), 1e12).reshape(2, 3), [0, 0, 1]])


def _draw_path_collection(renderer, gc, op):
    paths = [_path(path, 1e12) for path in op["paths"]]
    matrices = array(op["transforms"], (None, 6), 1e12)
    matrices = np.concatenate([matrices.reshape(-1, 2, 3), np.tile([[[0.0, 0, 1]]], (len(matrices), 1, 1))], axis=1)
    extra = {"hatchcolors": _colors(op["hatch"])}
    renderer.draw_path_collection(
        gc, transforms.Affine2D(_matrix(op["master"])), paths, matrices, array(op["offsets"], (None, 2)), IDENTITY,
        _colors(op["faces"]), _colors(op["edges"]), array(op["widths"], (None,), 2000),
        [_dashes(style) for style in op["styles"]], [bool(a) for a in op["aa"]], [None], "screen", **extra,
    )  # fmt: skip


def _draw_quad_mesh(renderer, gc, op):
    w, h = _integer(op["width"], 5000), _integer(op["height"], 5000)
    corners = array(op["corners"], ((w + 1) * (h + 1), 2)).reshape(h + 1, w + 1, 2)
    offsets = array(op["offsets"], (None, 2))
    renderer.draw_quad_mesh(
        gc, IDENTITY, w, h, corners, offsets, IDENTITY, _colors(op["faces"]), bool(op["aa"]), _colors(op["edges"])
    )


def _draw_image(renderer, gc, op):
    height, width, channels = op["shape"]
    size = _integer(height, MAX_SIDE) * _integer(width, MAX_SIDE) * 4
    inflater = zlib.decompressobj()
    raw = inflater.decompress(base64.b64decode(op["pixels"]), 4_000_001)
    if channels != 4 or len(raw) != size:
        raise BadRecord("an image has the wrong size")
    pixels = np.frombuffer(raw, dtype=np.uint8).reshape(height, width, 4).copy()
    renderer.draw_image(gc, _number(op["x"], -1e5, 1e5), _number(op["y"], -1e5, 1e5), pixels)


DRAW = {
    "path": _draw_path, "text": _draw_text, "markers": _draw_markers, "path_collection": _draw_path_collection,
    "quad_mesh": _draw_quad_mesh, "image": _draw_image,
}  # fmt: skip
