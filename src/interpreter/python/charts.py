"""Records what a matplotlib figure shows while it is saved or displayed.

Runs inside the session, so a record is only a claim: the checker redraws it elsewhere and believes
it where the redrawn picture equals the saved one. A record therefore has two halves: what the chart
means (axes, ticks, bars, lines, points, wedges, in data units) and every primitive that Agg drew
(`ops`, in pixels, packed), from which the picture can be drawn again.

`install(emit)` is called once `matplotlib.figure` has been imported; `emit(path, record)` gets the
path relative to the workspace, or None when the figure went to a buffer (a display).
"""

import base64
import functools
import json
import os
import zlib

VERSION = 1
MAX_OPS = 4000
MAX_POINTS = 20000  # of one series
MAX_PACKED = 1_200_000  # bytes of packed primitives; in base64 they leave room in a record of 2 MiB
MAX_AXES = 16
SHORT = 250  # vertices of a path recorded exactly
RC = (
    "text.hinting", "text.hinting_factor", "text.antialiased", "mathtext.fontset", "mathtext.default",
    "mathtext.fallback", "mathtext.rm", "mathtext.it", "mathtext.bf", "mathtext.cal", "mathtext.sf",
    "mathtext.tt", "path.snap", "path.simplify", "path.simplify_threshold", "agg.path.chunksize",
    "hatch.linewidth", "axes.unicode_minus", "font.family", "font.serif", "font.sans-serif", "font.monospace",
    "font.cursive", "font.fantasy",
)  # fmt: skip


def install(emit, root=None):
    """Hook matplotlib. A second call only replaces `emit`."""
    from matplotlib import backend_bases, figure
    from matplotlib.backends import backend_agg

    state = _State.instance
    state.emit, state.root = emit, root or os.getcwd()
    if state.installed:
        return
    state.installed = True
    backend_agg.RendererAgg = _recording_renderer(backend_agg.RendererAgg)
    figure.Figure.draw = _hook_draw(figure.Figure.draw)
    base = backend_bases.FigureCanvasBase
    base.print_figure = _hook_print(base.print_figure)


class _State:
    installed = False
    emit = None
    root = None
    depth = 0  # nested print_figure calls (IPython saves through a canvas of its own)
    last = None


_State.instance = _State()


def _hook_print(original):
    @functools.wraps(original)
    def print_figure(canvas, filename, *args, **kwargs):
        state = _State.instance
        state.depth += 1
        if state.depth == 1:
            state.last = None
        try:
            result = original(canvas, filename, *args, **kwargs)
        finally:
            state.depth -= 1
        if state.depth == 0 and state.last is not None and state.emit is not None:
            record, state.last = state.last, None
            # The figure is saved already: a failure to record must not become the user's failure.
            try:
                state.emit(_relative(filename, state.root), record)
            except Exception:
                pass
        return result

    return print_figure


def _relative(filename, root):
    if not isinstance(filename, (str, os.PathLike)):
        name = getattr(filename, "name", None)  # an open file knows its path
        if not isinstance(name, str):
            return None
        filename = name
    return os.path.relpath(os.path.abspath(os.fspath(filename)), root)


def _hook_draw(original):
    @functools.wraps(original)
    def draw(figure, renderer):
        ops = getattr(renderer, "recorded", None)
        # Layout passes replace the draw methods by no-ops on the instance: nothing to record then.
        live = ops is not None and _State.instance.depth > 0
        if live:
            ops.start()
        result = original(figure, renderer)
        if _State.instance.depth > 0:
            try:
                _State.instance.last = describe(figure, renderer, ops)
            except Exception as error:
                _State.instance.last = {"version": VERSION, "failed": f"{type(error).__name__}: {error}"[:300]}
        if live:
            ops.stop()
        return result

    return draw


def _recording_renderer(base):
    class RendererAgg(base):
        """Agg, which also notes what it draws."""

        def __init__(self, *args, **kwargs):
            self.recorded = _Ops()
            super().__init__(*args, **kwargs)

        def _update_methods(self):
            super()._update_methods()
            # These are bound to the C++ renderer anew for every (filter) renderer.
            for name in ("draw_markers", "draw_path_collection", "draw_quad_mesh", "draw_image", "draw_gouraud_triangles"):
                setattr(self, name, _noted(self.recorded, name, getattr(self, name)))

        def draw_path(self, gc, path, transform, rgbFace=None):
            self.recorded.note("draw_path", gc, path, transform, rgbFace)
            with self.recorded.paused():
                return super().draw_path(gc, path, transform, rgbFace)

        def draw_text(self, gc, x, y, s, prop, angle, ismath=False, mtext=None):
            self.recorded.note("draw_text", gc, x, y, s, prop, angle, ismath)
            with self.recorded.paused():
                return super().draw_text(gc, x, y, s, prop, angle, ismath=ismath, mtext=mtext)

        def draw_tex(self, *args, **kwargs):
            self.recorded.unsupported.add("TeX text")
            return super().draw_tex(*args, **kwargs)

        def start_filter(self):
            self.recorded.unsupported.add("image filter")
            return super().start_filter()

    return RendererAgg


def _noted(ops, name, original):
    @functools.wraps(original)
    def method(*args, **kwargs):
        ops.note(name, *args, **kwargs)
        return original(*args, **kwargs)

    return method


class _Paused:
    def __init__(self, ops):
        self.ops = ops

    def __enter__(self):
        self.was, self.ops.live = self.ops.live, False

    def __exit__(self, *_):
        self.ops.live = self.was


class _Ops:
    """The primitives of one draw."""

    def __init__(self):
        self.live = False
        self.items = []
        self.unsupported = set()

    def start(self):
        self.live, self.items, self.unsupported = True, [], set()

    def stop(self):
        self.live, self.items = False, []

    def paused(self):
        return _Paused(self)

    def note(self, name, gc, *args, **kwargs):
        if not self.live:
            return
        if len(self.items) >= MAX_OPS:
            self.unsupported.add(f"more than {MAX_OPS} primitives")
            return
        try:
            self.items.append({"op": name[5:], "gc": _gc(gc), **globals()["_" + name[5:]](*args, **kwargs)})
        except Exception as error:
            self.unsupported.add(f"{name}: {type(error).__name__}: {error}"[:200])

    def packed(self):
        raw = json.dumps(self.items, separators=(",", ":")).encode()
        packed = zlib.compress(raw, 6)
        if len(packed) > MAX_PACKED:
            self.unsupported.add("too many primitives to record")
            return None
        return base64.b64encode(packed).decode()


# One function per primitive: its arguments as JSON, geometry in pixels.


def _numbers(array, digits=3):
    import numpy as np

    array = np.round(np.asarray(array, dtype=float), digits)
    if np.isfinite(array).all():
        return array.tolist()
    return np.where(np.isfinite(array), array, None).tolist()


def _significant(array):
    """Numbers that are not pixels yet, to nine significant digits."""
    import numpy as np

    array = np.asarray(array, dtype=float)
    if not np.isfinite(array).all():
        raise ValueError("coordinates that are not finite")
    with np.errstate(divide="ignore"):
        digits = 9 - np.ceil(np.log10(np.abs(array)))
    scale = 10.0 ** np.where(np.isfinite(digits), np.clip(digits, -300, 300), 0)
    return (np.round(array * scale) / scale).tolist()


def _path_json(path, transform=None, numbers=None):
    vertices = path.vertices if transform is None else transform.transform(path.vertices)
    if len(vertices) > MAX_POINTS:
        raise ValueError("too many vertices")
    # Agg snaps edges and markers to pixels: rounding could move one by a whole pixel.
    digits = 15 if len(vertices) < SHORT else 6
    out = {"v": numbers(vertices) if numbers else _numbers(vertices, digits)}
    if path.codes is not None:
        out["c"] = [int(code) for code in path.codes]
    if path.should_simplify:
        out["s"] = float(path.simplify_threshold)
    return out


def _rgba(color):
    return None if color is None else _numbers(color, 5)


def _gc(gc):
    out = {"rgb": _rgba(gc.get_rgb()), "lw": round(float(gc.get_linewidth()), 4)}
    plain = {"alpha": 1.0, "forced": False, "aa": True, "cap": "butt", "join": "round", "snap": None}
    now = {
        "alpha": float(gc.get_alpha()), "forced": bool(gc.get_forced_alpha()), "aa": bool(gc.get_antialiased()),
        "cap": gc.get_capstyle(), "join": gc.get_joinstyle(), "snap": gc.get_snap(),
    }  # fmt: skip
    out.update({key: value for key, value in now.items() if value != plain[key]})
    offset, dashes = gc.get_dashes()
    if dashes is not None:
        out["dash"] = [float(offset), _numbers(dashes, 4)]
    if (rect := gc.get_clip_rectangle()) is not None:
        out["rect"] = _numbers(rect.extents)
    path, transform = gc.get_clip_path()
    if path is not None:
        out["clip"] = _path_json(path, transform)
    if gc.get_hatch():
        out["hatch"] = [gc.get_hatch(), _rgba(gc.get_hatch_color()), float(gc.get_hatch_linewidth())]
    if gc.get_sketch_params():
        out["sketch"] = _numbers(gc.get_sketch_params(), 4)
    return out


def _path(path, transform, rgbFace=None):
    return {"path": _path_json(path, transform), "face": _rgba(rgbFace)}


def _text(x, y, s, prop, angle, ismath=False):
    font = [list(prop.get_family())[:40], prop.get_style(), prop.get_variant(), prop.get_weight(), prop.get_stretch()]
    return {
        "x": round(float(x), 3), "y": round(float(y), 3), "s": str(s)[:2000], "angle": round(float(angle), 4),
        "math": bool(ismath), "font": font, "size": float(prop.get_size_in_points()),
    }  # fmt: skip


def _markers(marker_path, marker_trans, path, trans, rgbFace=None):
    return {"marker": _path_json(marker_path, marker_trans), "path": _path_json(path, trans), "face": _rgba(rgbFace)}


def _path_collection(master, paths, transforms, offsets, offset_trans, faces, edges, widths, styles, aa, urls, position, *, hatchcolors=None):  # fmt: skip
    import numpy as np

    if len(offsets) > MAX_POINTS or len(paths) > MAX_POINTS:
        raise ValueError("too many items")
    matrices = [np.asarray(m.get_matrix() if hasattr(m, "get_matrix") else m)[:2].ravel() for m in transforms]
    return {
        "master": _significant(np.asarray(master.get_matrix())[:2].ravel()),
        "paths": [_path_json(path, None, _significant) for path in paths],
        "transforms": _significant(matrices) if matrices else [],
        "offsets": _numbers(offset_trans.transform(np.asarray(offsets, dtype=float))),
        "faces": _numbers(faces, 5), "edges": _numbers(edges, 5), "widths": _numbers(widths, 4),
        "styles": [[float(offset), None if dash is None else _numbers(dash, 4)] for offset, dash in styles],
        "aa": [bool(a) for a in aa],
        "hatch": _numbers(hatchcolors, 5) if hatchcolors is not None and len(hatchcolors) else [],
    }  # fmt: skip


def _quad_mesh(master, width, height, coordinates, offsets, offset_trans, faces, antialiased, edges):
    import numpy as np

    corners = master.transform(np.asarray(coordinates, dtype=float).reshape(-1, 2))
    if len(corners) > MAX_POINTS:
        raise ValueError("too many cells")
    return {
        "width": int(width), "height": int(height), "corners": _numbers(corners),
        "offsets": _numbers(offset_trans.transform(np.asarray(offsets, dtype=float).reshape(-1, 2))),
        "faces": _numbers(faces, 5), "edges": _numbers(edges, 5), "aa": bool(antialiased),
    }  # fmt: skip


def _image(x, y, im, transform=None):
    import numpy as np

    im = np.asarray(im)
    if transform is not None or im.dtype != np.uint8 or im.nbytes > 4_000_000:
        raise ValueError("an image that cannot be recorded")
    pixels = base64.b64encode(zlib.compress(im.tobytes(), 6)).decode()
    return {"x": float(x), "y": float(y), "shape": list(im.shape), "pixels": pixels}


def _gouraud_triangles(*_args, **_kwargs):
    raise ValueError("Gouraud shading is not recorded")


# What the figure means.


def describe(figure, renderer, ops):
    """The record of a figure that `renderer` has just drawn."""
    import matplotlib

    raster = ops is not None
    record = {
        "version": VERSION,
        "width": int(renderer.width) if raster else 0,
        "height": int(renderer.height) if raster else 0,
        "dpi": float(getattr(renderer, "dpi", figure.dpi)),
        "rc": {key: matplotlib.rcParams[key] for key in RC if key in matplotlib.rcParams},
        "suptitle": figure.get_suptitle() if hasattr(figure, "get_suptitle") else "",
        "axes": [_axes(axes) for axes in figure.axes[:MAX_AXES] if axes.get_visible()],
        "legend": [entry for legend in figure.legends for entry in _legend(legend)],
        "ops": ops.packed() if raster else None,
    }
    unsupported = sorted(ops.unsupported) if raster else ["not a raster picture"]
    if len(figure.axes) > MAX_AXES:
        unsupported.append(f"more than {MAX_AXES} axes")
    record["unsupported"] = unsupported
    return record


def _axes(axes):
    out = {
        "name": axes.name,
        "box": _numbers(axes.bbox.extents),
        "title": " ".join(t for t in (axes.get_title(), axes.get_title("left"), axes.get_title("right")) if t),
        "legend": _legend(axes.get_legend()) if axes.get_legend() is not None else [],
        "bars": [bar for c in axes.containers if (bar := _bars(c)) is not None],
        "lines": [line for artist in axes.lines if (line := _line(axes, artist)) is not None],
        "points": [points for artist in axes.collections if (points := _points(axes, artist)) is not None],
        "wedges": [wedge for artist in axes.patches if (wedge := _wedge(artist)) is not None],
    }
    for name in "xy":
        axis = getattr(axes, name + "axis")
        out[name] = {
            "limits": _limits(getattr(axes, f"get_{name}lim")()),
            "scale": getattr(axes, f"get_{name}scale")(),
            "label": axis.get_label_text(),
            "offset": axis.get_offset_text().get_text(),
            "ticks": _ticks(axis, getattr(axes, f"get_{name}lim")()),
        }
    freq = getattr(axes, "freq", None)  # pandas draws dates as numbers of periods
    if freq is not None:
        out["x"]["freq"] = str(getattr(freq, "freqstr", freq))
    return out


def _limits(pair):
    return [float(pair[0]), float(pair[1])]


def _ticks(axis, limits):
    low, high = sorted(limits)
    slack = (high - low) * 1e-6
    ticks = []
    pairs = [(axis.get_majorticklocs(), axis.get_majorticklabels()), (axis.get_minorticklocs(), axis.get_minorticklabels())]
    for locs, labels in pairs:
        for loc, label in list(zip(locs, labels))[:500]:
            text = label.get_text()
            if text.strip() and label.get_visible() and low - slack <= loc <= high + slack:
                ticks.append([float(loc), text[:200]])
    return ticks


def _bars(container):
    from matplotlib.container import BarContainer
    from matplotlib.patches import Rectangle

    if not isinstance(container, BarContainer) or not len(container):
        return None
    patches = [p for p in container if isinstance(p, Rectangle) and p.get_visible()][:MAX_POINTS]
    return {
        "label": str(container.get_label()),
        "orientation": container.orientation or "vertical",
        "rects": [_exact([*p.get_xy(), p.get_width(), p.get_height()]) for p in patches],
        "faces": [_rgba(p.get_facecolor()) for p in patches],
    }


def _exact(values):
    import math

    return [float(v) if math.isfinite(v) else None for v in values]


def _line(axes, line):
    import numpy as np

    # Lines in other coordinates (axhline, spines of annotations) are no data.
    if not line.get_visible() or line.get_transform() != axes.transData:
        return None
    x = np.ma.filled(np.ma.asarray(line.get_xdata(orig=False), dtype=float), np.nan)
    y = np.ma.filled(np.ma.asarray(line.get_ydata(orig=False), dtype=float), np.nan)
    if not 0 < len(x) <= MAX_POINTS or len(x) != len(y):
        return None
    drawn = line.get_linestyle() not in ("None", "none", " ", "") and line.get_linewidth() > 0
    from matplotlib.colors import to_rgba

    marker = line.get_marker() not in (None, "None", "none", " ", "")
    return {
        "label": str(line.get_label()), "x": _exact(x), "y": _exact(y), "line": bool(drawn), "marker": marker,
        "color": _rgba(to_rgba(line.get_color(), line.get_alpha())),
        "face": _rgba(to_rgba(line.get_markerfacecolor(), line.get_alpha())) if marker else None,
        "steps": line.get_drawstyle() != "default",
    }  # fmt: skip


def _points(axes, artist):
    import numpy as np
    from matplotlib.collections import PathCollection

    if not isinstance(artist, PathCollection) or not artist.get_visible() or artist.get_offset_transform() != axes.transData:
        return None
    offsets = np.ma.filled(np.ma.asarray(artist.get_offsets(), dtype=float), np.nan)
    if not 0 < len(offsets) <= MAX_POINTS:
        return None
    faces = artist.get_facecolor()
    if len(faces) == 0:  # hollow markers
        faces = artist.get_edgecolor()
    return {"label": str(artist.get_label()), "x": _exact(offsets[:, 0]), "y": _exact(offsets[:, 1]), "faces": _numbers(faces, 5)}


def _wedge(artist):
    from matplotlib.patches import Wedge

    if not isinstance(artist, Wedge) or not artist.get_visible():
        return None
    width = artist.width
    return {
        "label": str(artist.get_label()), "center": _exact(artist.center), "r": float(artist.r),
        "width": None if width is None else float(width), "theta": _exact([artist.theta1, artist.theta2]),
        "face": _rgba(artist.get_facecolor()),
    }  # fmt: skip


def _legend(legend):
    entries = []
    for handle, text in list(zip(legend.legend_handles, legend.get_texts()))[:100]:
        entries.append({"label": text.get_text()[:200], "color": _handle_color(handle)})
    return entries


def _handle_color(handle):
    import numpy as np
    from matplotlib.colors import to_rgba

    if hasattr(handle, "patches") and handle.patches:
        handle = handle.patches[0]
    for name in ("get_facecolor", "get_color", "get_markerfacecolor", "get_edgecolor"):
        if not hasattr(handle, name):
            continue
        if name == "get_color" and str(handle.get_linestyle()) in ("None", "none", "", " "):
            continue  # a legend of markers only
        color = np.asarray(to_rgba_first(getattr(handle, name)(), to_rgba))
        if color[3] > 0:
            return _rgba(color)
    return None


def to_rgba_first(color, to_rgba):
    """The first color of what an artist's getter gave, as RGBA."""
    import numpy as np

    if isinstance(color, np.ndarray) and color.ndim == 2:
        return color[0] if len(color) else (0, 0, 0, 0)
    return to_rgba(color)
