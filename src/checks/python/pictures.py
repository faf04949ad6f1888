"""Opening pictures of unknown origin within bounds, and what their headers say."""

import functools
import io
import warnings

from common import Fail
from PIL import Image

MAX_PIXELS = 40_000_000
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "ICO")
PNG_COLORS = {0: "L", 2: "RGB", 3: "P", 4: "LA", 6: "RGBA"}
Image.MAX_IMAGE_PIXELS = MAX_PIXELS


def open_picture(candidate, path):
    """The picture, loaded. Its format is what the bytes say, never what the name says."""
    full = candidate.file(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            image = Image.open(full, formats=FORMATS)
            if image.width * image.height > MAX_PIXELS:
                raise Fail(f"{path} has {image.width}x{image.height} pixels, too many")
            image.load()
    except Fail:
        raise
    except Exception as error:
        raise Fail(f"{path} is no readable picture: {type(error).__name__}: {error}") from None
    return image


def stored_mode(full, image):
    """Channels and bit depth as the file has them: a reader turns 16 bits into 8, for example."""
    if image.format != "PNG":
        return image.mode
    with open(full, "rb") as file:
        header = file.read(26)
    depth, color = header[24], PNG_COLORS.get(header[25], "unknown")
    return color if depth == 8 else f"{color} with {depth} bits"


def jpeg_quality(image):
    """The quality (1 to 100) whose quantization tables are nearest to those of a loaded JPEG."""
    found = image.quantization
    return min(range(1, 101), key=lambda quality: _gap(found, _tables(quality)))


def _gap(found, wanted):
    pairs = ((found.get(number), table) for number, table in wanted.items())
    return sum(abs(a - b) for one, other in pairs if one is not None for a, b in zip(one, other))


@functools.lru_cache(maxsize=100)
def _tables(quality):
    return recompressed(Image.new("RGB", (8, 8)), quality).quantization


def recompressed(image, quality, subsampling=2):
    """A picture after a round trip through JPEG."""
    out = io.BytesIO()
    image.convert("RGB").save(out, "JPEG", quality=quality, subsampling=subsampling)
    again = Image.open(out)
    again.load()
    return again
