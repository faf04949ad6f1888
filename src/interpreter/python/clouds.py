"""Records the layout of a word cloud when it becomes a picture: words, sizes, places, colors.

As with charts, a record is only a claim: the checker draws it elsewhere and believes it where the
saved picture agrees.
"""

import functools

MAX_WORDS = 2000


def install(module, emit):
    """Hook `WordCloud.to_image`, through which files, arrays and displays go."""
    cloud = module.WordCloud
    original = cloud.to_image

    @functools.wraps(original)
    def to_image(self):
        image = original(self)
        # The picture exists already: a failure to record must not become the user's failure.
        try:
            emit(None, {"cloud": describe(self)})
        except Exception:
            pass
        return image

    cloud.to_image = to_image


def describe(cloud):
    """The layout as JSON; `at` is (row, column) in unscaled pixels."""
    height, width = cloud.mask.shape[:2] if cloud.mask is not None else (cloud.height, cloud.width)
    words = [
        {
            "word": str(word)[:200], "frequency": float(frequency), "size": int(size), "at": [int(v) for v in at],
            "turn": None if turn is None else int(turn), "color": str(color),
        }
        for (word, frequency), size, at, turn, color in cloud.layout_[:MAX_WORDS]
    ]  # fmt: skip
    return {
        "width": int(width), "height": int(height), "scale": float(cloud.scale), "font": str(cloud.font_path),
        "background": None if cloud.background_color is None else str(cloud.background_color), "words": words,
    }  # fmt: skip
