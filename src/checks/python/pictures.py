"""Opening pictures of unknown origin within bounds."""

import warnings

from common import Fail
from PIL import Image

MAX_PIXELS = 40_000_000
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "ICO")
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
