"""Compares a saved picture with the redrawn one.

The redrawn picture is made by the same library from the same primitives, so a PNG equals it up to
the rounding of recorded coordinates. A JPEG is compared with the redrawn picture after the same
quantization. `TOLERANCE` is measured, see docs/chart-proof.md.
"""

import io

import numpy as np

from .redraw import on_white

WINDOW = 4  # pixels, side
TOLERANCE = 12.0  # of 255: largest mean difference in any window


def difference(image, redrawn):
    """Largest mean difference (of the worst channel) over all windows, of 255."""
    saved = pixels(image)
    if saved.shape != redrawn.shape:
        return 255.0
    if image.format == "JPEG":
        redrawn = _as_jpeg(redrawn, image)
    gap = np.abs(saved - redrawn).max(axis=2)
    return float(window_means(gap).max())


def pixels(image):
    """RGB on white, as floats."""
    return on_white(np.asarray(image.convert("RGBA")).astype(float))


def window_means(gap):
    """Mean over every window."""
    sums = np.pad(gap, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    h, w = (min(WINDOW, n) for n in gap.shape)
    return (sums[h:, w:] - sums[:-h, w:] - sums[h:, :-w] + sums[:-h, :-w]) / (h * w)


def _as_jpeg(redrawn, image):
    from PIL import Image, JpegImagePlugin

    buffer = io.BytesIO()
    picture = Image.fromarray(np.clip(np.round(redrawn), 0, 255).astype(np.uint8)).convert(image.mode)
    picture.save(buffer, "JPEG", qtables=image.quantization, subsampling=max(JpegImagePlugin.get_sampling(image), 0))
    return pixels(Image.open(buffer))
