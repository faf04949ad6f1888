"""Helpers for reference code. Shares nothing with what experts use: no pandas."""

import os

import inputs


def rows(path, sheet=None):
    """A table as a list of dicts. Each column has the type that pandas gives it; None is missing."""
    names, columns = inputs.table(path, sheet)
    return [dict(zip(names, row)) for row in zip(*columns)]


def text(path):
    """The text of a file."""
    return inputs.text(path)


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


def require(holds, what):
    """Says that no task can be made of these files unless this holds, and why."""
    from common import Unfit

    if not holds:
        raise Unfit(what)


def any_of(*choices):
    """What is expected, where several results are right."""
    from common import AnyOf

    return AnyOf(choices)


def assertions(setup, tests):
    """Tests of functions, made of Python's `assert` statements: the reference of a `calls` check."""
    import function_tests

    return function_tests.of_assertions(setup, tests)


def calls_of(name, tests):
    """Tests of one function, made of a JSON text: lists of arguments (`inputs`) and results (`outputs`). The reference of a
    `calls` check."""
    import json

    import function_tests

    tests = json.loads(tests)
    return function_tests.of_function(name, tests["inputs"], tests["outputs"])
