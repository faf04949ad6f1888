"""qr: a picture holds a QR code that decodes to the reference string, and no other."""

from common import Fail, OursError, reference, short
from pictures import open_picture


def check(spec, names, candidate):
    expected = str(reference(names, spec["expected"]))
    image = open_picture(candidate, spec["path"])
    found = _decode(image)
    if not found:
        raise Fail(f"{spec['path']} holds no readable QR code")
    if set(found) != {expected}:
        raise Fail(f"{spec['path']}: decodes to {short(found)}, expected {short(expected)}")


def _decode(image):
    from PIL import Image

    picture = Image.new("RGB", image.size, "white")
    rgba = image.convert("RGBA")
    picture.paste(rgba, mask=rgba)
    try:
        from pyzbar.pyzbar import ZBarSymbol, decode
    except ImportError as error:
        raise OursError(f"QR codes cannot be read here (libzbar0): {error}") from None
    return [_text(code.data) for code in decode(picture.convert("L"), symbols=[ZBarSymbol.QRCODE])]


def _text(data):
    """zbar guesses an encoding for bytes that are no ASCII, and is often wrong: undo its guess."""
    text = data.decode("utf-8", "replace")
    for codec in ("shift_jis", "big5", "latin-1"):
        try:
            return text.encode(codec).decode("utf-8") if not text.isascii() else text
        except UnicodeError:
            continue
    return text
