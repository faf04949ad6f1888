"""Helpers for reference code. Shares nothing with what experts use: no pandas."""

import os

from tables import read_table, typed


def rows(path, sheet=None):
    """A table as a list of dicts: int, float, str or None (what pandas takes for missing)."""
    table = read_table(path, path, sheet)
    return [dict(zip(table.columns, map(typed, row))) for row in table.rows]


def text(path):
    """The text of a file."""
    from common import decode

    with open(path, "rb") as file:
        return decode(file.read(), path)


def image(path):
    """A picture, loaded, as stored."""
    from PIL import Image

    picture = Image.open(path)
    picture.load()
    return picture


def audio(path):
    """A sound as (float array of shape (samples, channels), rate)."""
    from sounds import read_sound

    return read_sound(os.path.abspath(path), path)


def any_of(*choices):
    """What is expected, where several results are right."""
    from common import AnyOf

    return AnyOf(choices)
