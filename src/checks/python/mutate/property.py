"""Wrong candidates for a property: spoiled files and answers, whatever the property asks."""

import io
import os
import re

from mutate import Mutant

PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")


def mutants(spec, names, candidate):
    path = spec.get("path")
    if path is None:
        return _answers(candidate.answer)
    if os.path.isdir(os.path.join(candidate.root, path)):
        return _folder(path, candidate)
    extension = os.path.splitext(path)[1].lower()
    if extension in PICTURES:
        return _pictures(path, candidate)
    if extension == ".pkl":
        return _models(path, candidate)
    if extension in (".csv", ".xlsx", ".tsv"):
        return _tables(path, candidate)
    return _files(path, candidate)


def _answers(answer):
    bump = lambda m: f"{float(m[0].replace(',', '')) * 1.37 + 11:.6g}"  # noqa: E731
    if re.search(r"\d", answer):
        yield Mutant("numbers changed", answer=re.sub(r"\d[\d,]*(?:\.\d+)?", bump, answer))
        yield Mutant("numbers dropped", answer=re.sub(r"\d[\d,]*(?:\.\d+)?", "several", answer))
    words = lambda m: m[0][::-1] + "x"  # noqa: E731
    yield Mutant("words garbled", answer=re.sub(r"[A-Za-z]{2,}|[\u4e00-\u9fff]{2,}", words, answer))
    yield Mutant("first line only, cut", answer=answer.splitlines()[0][: max(len(answer) // 10, 3)] if answer.strip() else "")
    yield Mutant("no answer", answer="")
    yield Mutant("I cannot", answer="I am sorry, the data do not allow an answer.")
    yield Mutant("a number", answer="42")
    yield Mutant("repeated without end", answer=(answer + "\n") * (200_000 // max(len(answer), 1)))


def _pictures(path, candidate):
    import numpy as np
    from pictures import open_picture
    from PIL import Image

    image = open_picture(candidate, path).convert("RGB")
    noise = np.random.default_rng(0).integers(0, 256, (image.height, image.width, 3), dtype=np.uint8)
    shapes = {
        "white": Image.new("RGB", image.size, "white"), "black": Image.new("RGB", image.size),
        "grey": Image.new("RGB", image.size, (128, 128, 128)), "noise": Image.fromarray(noise),
        "one pixel": image.resize((1, 1)), "an eighth of the size": image.resize((max(image.width // 8, 1), max(image.height // 8, 1))),
        "half of it blank": _half(image), "blocks shuffled": _shuffled(image),
    }  # fmt: skip
    form = {".jpg": "JPEG", ".jpeg": "JPEG", ".gif": "GIF", ".webp": "WEBP"}.get(os.path.splitext(path)[1].lower(), "PNG")
    for name, new in shapes.items():
        out = io.BytesIO()
        new.save(out, form)
        yield Mutant(name, {path: out.getvalue()})
    yield Mutant("truncated", {path: candidate.bytes(path)[: len(candidate.bytes(path)) // 5]})


def _half(image):
    new = image.copy()
    new.paste((200, 30, 200), (0, 0, image.width, image.height // 2))
    return new


def _shuffled(image):
    """Four quarters in another order."""
    w, h = max(image.width // 2, 1), max(image.height // 2, 1)
    new = image.copy()
    new.paste(image.crop((0, 0, w, h)), (w, h))
    new.paste(image.crop((w, h, 2 * w, 2 * h)), (0, 0))
    return new


def _tables(path, candidate):
    from tables import read_table, sniff, typed

    from mutate.table import render

    full = candidate.file(path)
    table = read_table(full, path)
    rows = [[typed(cell) for cell in row] for row in table.rows]
    scaled = [[v * 1.21 + 3 if isinstance(v, (int, float)) else v for v in row] for row in rows]
    shapes = {"header only": [], "half of the rows": rows[: len(rows) // 2], "numbers changed": scaled, "cells empty": [[None] * len(row) for row in rows], "every row twice": rows + rows}
    for name, new in shapes.items():
        if new != rows:
            yield Mutant(name, {path: render(sniff(full), path, None, table.columns, new, full)})
    yield Mutant("text of an error", {path: b"Traceback (most recent call last):\nKeyError: 'x'\n"})
    yield Mutant("columns lost", {path: render(sniff(full), path, None, ["x"], [[i] for i in range(len(rows))], full)})
    yield Mutant("truncated", {path: candidate.bytes(path)[: max(len(candidate.bytes(path)) // 3, 1)]})


def _models(path, candidate):
    import pickle

    from sklearn.cluster import KMeans
    from sklearn.dummy import DummyClassifier, DummyRegressor
    from sklearn.preprocessing import StandardScaler

    blank = [[0.0], [1.0], [2.0]]
    shapes = {
        "not a model": {"accuracy": 1.0}, "a list": [1, 2, 3], "predicts the mean": DummyRegressor().fit(blank, [1.0, 2.0, 3.0]),
        "predicts zero": DummyRegressor(strategy="constant", constant=0.0).fit(blank, [0.0, 0.0, 1.0]),
        "predicts one class": DummyClassifier(strategy="constant", constant=1).fit(blank, [0, 1, 1]),
        "a scaler only": StandardScaler().fit(blank), "not fitted": KMeans(2),
    }  # fmt: skip
    for name, model in shapes.items():
        yield Mutant(name, {path: pickle.dumps(model)})
    yield from _files(path, candidate)


def _files(path, candidate):
    data = candidate.bytes(path)
    yield Mutant("truncated", {path: data[: len(data) // 3]})
    yield Mutant("text of an error", {path: b"Traceback (most recent call last):\nKeyError: 'x'\n"})
    yield Mutant("zeros", {path: bytes(len(data))})
    yield Mutant("words", {path: b"I made the file as asked."})
    yield Mutant("reversed", {path: data[::-1]})


def _folder(path, candidate):
    """Every file of the folder spoiled alike."""
    data = {}
    for place, _, names in os.walk(os.path.join(candidate.root, path)):
        for name in names[:100]:
            inside = os.path.relpath(os.path.join(place, name), candidate.root)
            data[inside] = candidate.bytes(inside)
    yield Mutant("files removed", {name: None for name in data})
    yield Mutant("files empty", {name: b"" for name in data})
    yield Mutant("files cut", {name: value[: len(value) // 4] for name, value in data.items()})
    yield Mutant("text of an error", {name: b"Traceback (most recent call last):\nKeyError: 'x'\n" for name in data})
    yield Mutant("words", {name: b"I made the files as asked." for name in data})
