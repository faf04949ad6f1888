"""Wrong pictures."""

import io

import numpy as np
from common import reference
from PIL import Image, ImageOps

from mutate import Mutant

FLIP, FLOP = Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.FLIP_TOP_BOTTOM


def mutants(spec, names, candidate):
    path = spec["path"]
    with Image.open(candidate.file(path)) as original:
        original.load()
        form = original.format
    for name, image in variants(original, original.mode == "L"):
        if visibly(image, original, spec["mean_difference"]):
            yield Mutant(name, {path: encode(image, form)})
    if spec.get("format"):
        other = "BMP" if form != "BMP" else "PNG"
        yield Mutant("another format", {path: encode(original.convert("RGB"), other)})
    for mode in sorted({"L", "RGB", "RGBA", "P"} - {spec.get("mode")}) if spec.get("mode") and form == "PNG" else ():
        yield Mutant(f"stored as {mode}", {path: encode(original.convert(mode), form)})
    for quality in (q for q in (10, 60, 100) if spec.get("quality") and abs(q - spec["quality"]) > 4):
        yield Mutant(f"quality {quality}", {path: encode(original, form, quality)})
    yield Mutant("truncated", {path: candidate.bytes(path)[: len(candidate.bytes(path)) // 3]})
    reference(names, spec["expected"])


def variants(image, grey=False):
    """(name, picture); palette pictures as RGB, so that operations work."""
    image = image.convert("RGBA" if "A" in image.mode or "transparency" in image.info else "RGB" if image.mode != "L" else "L")
    w, h = image.size
    plain = image.convert("RGB")
    yield "mirrored", image.transpose(FLIP)
    yield "flipped", image.transpose(FLOP)
    yield "rotated by 180°", image.rotate(180)
    yield "rotated by 90°", image.transpose(Image.Transpose.ROTATE_90)
    yield "shifted by 2 pixels", Image.fromarray(np.roll(np.asarray(image), 2, axis=1))
    yield "inverted", ImageOps.invert(plain if not grey else plain.convert("L"))
    yield "brighter by 10", plain.point(lambda v: min(v + 10, 255))
    yield "darker by 10", plain.point(lambda v: max(v - 10, 0))
    yield "one pixel wider", image.resize((w + 1, h))
    yield "one pixel less", image.resize((max(w - 1, 1), max(h - 1, 1)))
    yield "cropped", image.crop((0, 0, max(w * 9 // 10, 1), h))
    yield "cropped and resized", image.crop((w // 10, 0, w, h)).resize((w, h))
    if not grey:
        yield "grey", plain.convert("L").convert("RGB")
        yield "red and blue swapped", Image.merge("RGB", plain.split()[::-1])
    yield "blank", Image.new(image.mode, image.size, "white" if image.mode != "RGBA" else (255, 255, 255, 255))
    yield "black", Image.new("RGB", image.size)


def visibly(a, b, allowed):
    """Whether a picture differs so that anyone would say so."""
    if a.size != b.size:
        return True
    gap = np.abs(np.asarray(a.convert("RGB"), float) - np.asarray(b.convert("RGB"), float)).max(axis=2)
    return gap.mean() > max(2 * allowed, 0.5) or (gap > 48).mean() > 0.02


def encode(image, form, quality=95):
    """Bytes of a picture."""
    out = io.BytesIO()
    if form in ("JPEG", "BMP") and image.mode not in ("RGB", "L"):
        image = image.convert("RGB")
    image.save(out, form, **({"quality": quality} if form == "JPEG" else {"lossless": True} if form == "WEBP" else {}))
    return out.getvalue()
