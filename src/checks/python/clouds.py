"""Words of a word cloud: the recorded layout is a claim, believed where the picture drawn from it is the saved one."""

import numpy as np
from common import Unproven
from pictures import open_picture
from PIL import Image, ImageDraw, ImageFont

MAX_WORDS = 2000
MAX_SIDE = 6000
LIKENESS = 0.75  # correlation of the ink of both pictures
SMALL = 600  # pixels, the longer side at which they are compared


def words(candidate, path):
    """{word: relative size} of the first recorded layout that the picture supports."""
    image = open_picture(candidate, path)
    clouds = [c["figure"]["cloud"] for c in candidate.claims if isinstance(c, dict) and isinstance(c.get("figure"), dict) and "cloud" in c["figure"]]
    if not clouds:
        raise Unproven("no word cloud was recorded: it was not made with the wordcloud package")
    places = [image.convert("RGB"), *_inset(candidate, path, image)]
    best = 0.0
    for cloud in list(reversed(clouds))[:12]:
        try:
            drawn, blank = _draw(cloud)
        except (KeyError, TypeError, ValueError, OSError, IndexError) as error:
            raise Unproven(f"the cloud's record is damaged: {type(error).__name__}: {error}") from None
        for picture in places:
            best = max(best, likeness := max(_likeness(picture, drawn, blank), _likeness(*_trimmed(picture, drawn, blank))))
            if likeness >= LIKENESS:
                return {str(w["word"]): float(w["size"]) / max(float(v["size"]) for v in cloud["words"]) for w in cloud["words"]}
    raise Unproven(f"the picture does not support the recorded cloud (likeness {best:.2f})")


def _draw(cloud):
    """The picture of a layout, and the same without its words."""
    width, height, scale = int(cloud["width"]), int(cloud["height"]), float(cloud["scale"])
    size = int(width * scale), int(height * scale)
    if not (0 < size[0] <= MAX_SIDE and 0 < size[1] <= MAX_SIDE) or not 0 < len(cloud["words"]) <= MAX_WORDS:
        raise ValueError("out of bounds")
    blank = Image.new("RGB", size, cloud["background"] or "white")
    image, fonts = blank.copy(), {}
    pen = ImageDraw.Draw(image)
    for word in cloud["words"]:
        points = int(word["size"] * scale)
        if not 0 < points <= 2000:
            raise ValueError("a font is out of bounds")
        font = fonts.setdefault(points, ImageFont.truetype(_font(cloud["font"]), points))
        turned = ImageFont.TransposedFont(font, orientation=word["turn"])
        row, column = word["at"]
        pen.text((int(column * scale), int(row * scale)), str(word["word"])[:200], fill=str(word["color"]), font=turned)
    return image, blank


def _font(path):
    """A font by the recorded path where this machine has it, else the package's own."""
    import os

    import wordcloud

    allowed = os.path.realpath(str(path)).startswith(("/usr/share/fonts/", os.path.dirname(os.path.realpath(wordcloud.__file__))))
    return str(path) if allowed and os.path.isfile(str(path)) else os.path.join(os.path.dirname(wordcloud.__file__), "DroidSansMono.ttf")


def _inset(candidate, path, image):
    """Where a figure shows pictures (imshow), those parts of the saved picture."""
    from checks.plot import _prove

    try:
        drawing, _ = _prove(candidate, path, image)
    except Unproven:
        return
    for op in drawing.ops:
        if op["op"] == "image":
            h, w = op["shape"][:2]
            top = drawing.height - op["y"] - h
            yield image.convert("RGB").crop((round(op["x"]), round(top), round(op["x"]) + w, round(top) + h))


def _trimmed(picture, drawn, blank):
    """Both pictures cut to their ink, for figures whose margins are unknown."""
    ground = np.asarray(blank.getpixel((0, 0)), dtype=int)
    cuts = []
    for image in (picture, drawn):
        ink = np.abs(np.asarray(image, dtype=int) - ground).max(axis=2) > 60
        rows, columns = np.flatnonzero(ink.any(axis=1)), np.flatnonzero(ink.any(axis=0))
        cuts.append(image.crop((columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)) if len(rows) else image)
    return (*cuts, blank.crop((0, 0, *cuts[1].size)))


def _likeness(picture, drawn, blank):
    """Correlation of how far each picture departs from the background."""
    if abs(picture.width / picture.height - drawn.width / drawn.height) > 0.03 * drawn.width / drawn.height:
        return 0.0
    ratio = min(1.0, SMALL / max(drawn.size))
    size = max(int(drawn.width * ratio), 8), max(int(drawn.height * ratio), 8)
    a, b, c = (np.asarray(i.resize(size, Image.Resampling.BOX), dtype=np.float64) for i in (picture, drawn, blank))
    ink = [np.abs(p - c).max(axis=2) for p in (a, b)]
    if min(i.std() for i in ink) < 1e-6:
        return 0.0
    return float(np.corrcoef(ink[0].ravel(), ink[1].ravel())[0, 1])
