"""qr: a picture holds a QR code that decodes to the reference string, and no other; with a light margin around it."""

from common import Fail, Mismatch, OursError, reference, short
from pictures import open_picture


def check(spec, names, candidate):
    expected = str(reference(names, spec["expected"]))
    image = open_picture(candidate, spec["path"])
    found = _decode(image)
    if not found:
        raise Fail(f"{spec['path']} holds no readable QR code")
    if set(found) != {expected}:
        raise Mismatch(f"{spec['path']}: decoded", short(expected), short(found))
    if spec.get("quiet_zone") and (margin := _margin(image)) < spec["quiet_zone"] - 0.25:
        raise Fail(f"{spec['path']}: the margin is {margin:.1f} modules wide, {spec['quiet_zone']:g} expected")


def _margin(image):
    """The light margin around the dark pixels, in modules: the first dark run is a corner's, seven modules wide."""
    import numpy as np

    dark = np.asarray(_on_white(image).convert("L")) < 128
    rows, columns = np.flatnonzero(dark.any(axis=1)), np.flatnonzero(dark.any(axis=0))
    first = dark[rows[0], columns[0] :]
    module = (len(first) if first.all() else int(np.argmin(first))) / 7
    height, width = dark.shape
    return min(rows[0], columns[0], height - 1 - rows[-1], width - 1 - columns[-1]) / max(module, 1e-9)


def _on_white(image):
    from PIL import Image

    picture = Image.new("RGB", image.size, "white")
    rgba = image.convert("RGBA")
    picture.paste(rgba, mask=rgba)
    return picture


def _decode(image):
    try:
        from pyzbar.pyzbar import ZBarSymbol, decode
    except ImportError as error:
        raise OursError(f"QR codes cannot be read here (libzbar0): {error}") from None
    return [_text(code.data) for code in decode(_on_white(image).convert("L"), symbols=[ZBarSymbol.QRCODE])]


def _text(data):
    """zbar guesses an encoding for bytes that are no ASCII, and is often wrong: undo its guess."""
    text = data.decode("utf-8", "replace")
    for codec in ("shift_jis", "big5", "latin-1"):
        try:
            return text.encode(codec).decode("utf-8") if not text.isascii() else text
        except UnicodeError:
            continue
    return text
