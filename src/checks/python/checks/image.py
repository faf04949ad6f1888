"""image: a picture equals the reference picture, pixel by pixel."""

import numpy as np
from common import Fail, Mismatch, OursError, reference
from pictures import jpeg_quality, open_picture, recompressed, stored_mode

WINDOW = 8
LOCAL = 12.0  # how much more than the allowed mean any window may differ


def check(spec, names, candidate):
    expected = reference(names, spec["expected"])
    if not hasattr(expected, "convert"):
        raise OursError(f"the reference's `{spec['expected']}` is no picture")
    path, image = spec["path"], open_picture(candidate, spec["path"])
    if spec.get("format") and image.format != spec["format"].upper().replace("JPG", "JPEG"):
        raise Mismatch(f"{path}: format", spec["format"], image.format)
    stored = stored_mode(candidate.file(path), image)
    if spec.get("mode") and stored != spec["mode"]:
        raise Mismatch(f"{path}: mode", spec["mode"], stored)
    if not spec.get("quality"):
        return compare(image, expected, spec["mean_difference"], path)
    _as_compressed(spec, image, expected, path)


def _as_compressed(spec, image, expected, path):
    """The picture equals the reference after a round trip at the quality that was asked for, however colors are sampled."""
    asked = spec["quality"]
    quality = jpeg_quality(image) if image.format == "JPEG" else None
    if quality is None or abs(quality - asked) > 1:
        raise Mismatch(f"{path}: quality", asked, quality)
    failed = None
    for subsampling in (0, 1, 2):
        try:
            return compare(image, recompressed(expected, asked, subsampling), spec["mean_difference"], path)
        except Fail as error:
            failed = error
    raise failed


def compare(image, expected, allowed, what):
    """Raise Fail unless the pictures are equal within `allowed` (mean, of 255, in every channel)."""
    if image.size != expected.size:
        raise Mismatch(f"{what}: pixels", "{}x{}".format(*expected.size), "{}x{}".format(*image.size))
    alpha = any("A" in i.mode or "transparency" in i.info for i in (image, expected))
    gap = np.abs(_array(image, alpha) - _array(expected, alpha))
    mean = float(gap.reshape(-1, gap.shape[-1]).mean(axis=0).max())
    if mean > allowed + 1e-9:
        raise Fail(f"{what}: differs by {mean:.2f} of 255 on average, {allowed} allowed")
    # A shift of a few pixels hides in the mean of a picture with large even areas.
    local = _worst_window(gap.max(axis=2))
    if local > LOCAL * allowed + 1e-9:
        raise Fail(f"{what}: differs by {local:.0f} of 255 in one place")


def _array(image, alpha):
    """Color pixels of shape (height, width, channels): a gray picture has three equal ones."""
    if image.mode.startswith("I;16") or image.mode == "I":
        image = image.point(lambda v: v / 257).convert("L") if image.mode == "I" else _from_16(image)
    out = np.array(image.convert("RGBA" if alpha else "RGB"), dtype=np.float32)
    if alpha:  # what is transparent has no color
        out[..., :3] *= out[..., 3:] / 255
    return out


def _from_16(image):
    from PIL import Image

    return Image.fromarray((np.asarray(image) / 257).round().astype(np.uint8))


def _worst_window(gap):
    sums = np.pad(gap.astype(np.float64), ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    h, w = (min(WINDOW, n) for n in gap.shape)
    return float((sums[h:, w:] - sums[:-h, w:] - sums[h:, :-w] + sums[:-h, :-w]).max() / (h * w))
