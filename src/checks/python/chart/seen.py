"""What a picture shows: an element without which the picture is the same is not there.

Elements that do not touch are left out together: where the picture changes then says which of them it shows.
"""

FAINT = 24.0  # of 255: a text that changes its pixels by less cannot be read
INK = 64  # of 255: pixels that a text covers at least so much
LEGIBLE = 0.25  # share of a text's ink in sight: crowded labels cover each other
MARGIN = 2.0  # pixels: antialiasing, rounded places


def texts(drawing, recorded):
    """The recorded texts that the picture shows, in their order. A blank line keeps its place among others."""
    shown = {text.number for text in recorded if not text.s.strip()}
    for group in apart([text for text in recorded if text.s.strip()]):
        numbers = [text.number for text in group]
        changed, ink = drawing.changed(numbers, FAINT), drawing.ink(numbers) >= INK
        shown.update(text.number for text in group if _legible(drawing, text, changed, ink))
    return [text for text in recorded if text.number in shown]


def _legible(drawing, text, changed, ink):
    box = text.low - MARGIN, text.high + MARGIN
    own = drawing.cut(ink, *box)
    return own.any() and drawing.cut(changed, *box)[own].mean() >= LEGIBLE


def apart(elements):
    """Elements (with corners `low` and `high`) in groups whose members do not touch each other."""
    groups = []
    for element in elements:
        free = (group for group in groups if not any(_touch(element, other) for other in group))
        group = next(free, None)
        if group is None:
            groups.append([element])
        else:
            group.append(element)
    return groups


def _touch(a, b):
    return all(a.low[i] - MARGIN < b.high[i] + MARGIN and b.low[i] - MARGIN < a.high[i] + MARGIN for i in (0, 1))
