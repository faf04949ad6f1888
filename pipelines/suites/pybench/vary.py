"""Other inputs of the same kind, by seed: what a model remembers of the published files is of no use.

Runs in a session of its own, in a folder whose `data/` is a copy of the task's inputs, with `SEED` and a
seeded `random`. The reference is computed from what is left there.
"""

import os

TABLES, PICTURES = (".csv", ".xlsx"), (".jpeg", ".jpg", ".png", ".webp", ".gif")


def vary(ways):
    """Change every file of `data/` that can be changed so."""
    for name in sorted(os.listdir("data")):
        path = os.path.join("data", name)
        kind = os.path.splitext(name)[1].lower()
        if kind in TABLES:
            _table(path, kind, ways)
        elif kind in PICTURES and "picture" in ways:
            _picture(path)
        elif kind == ".txt" and "sentences" in ways:
            _sentences(path)
        elif kind == ".pdf" and "pages" in ways:
            _pages(path)


def _table(path, kind, ways):
    import pandas

    encoding = {}
    if kind == ".csv":
        try:
            frame = pandas.read_csv(path)
        except UnicodeDecodeError:
            encoding = {"encoding": "latin-1"}
            frame = pandas.read_csv(path, **encoding)
    else:
        frame = pandas.read_excel(path)
    if "rows" in ways or "fewer" in ways:
        share = random.uniform(0.8, 0.95)  # noqa: F821
        kept = frame.sample(frac=share, random_state=SEED)  # noqa: F821
        frame = kept if "rows" in ways else kept.sort_index()
    if "columns" in ways:
        frame["Ref. code"] = [f"{random.choice('KQVX')}-{random.randrange(10**5):05}" for _ in range(len(frame))]  # noqa: F821
        frame = frame[random.sample(list(frame.columns), len(frame.columns))]  # noqa: F821
    if len(frame) and kind == ".csv":
        frame.to_csv(path, index=False, **encoding)
    elif len(frame):
        frame.to_excel(path, index=False)


def _picture(path):
    """Mirrored, cropped and tinted, each frame in the same way."""
    from PIL import Image, ImageEnhance, ImageOps, ImageSequence

    sides = [random.uniform(0.02, 0.08) for _ in range(2)]  # noqa: F821
    color, brightness = random.uniform(0.8, 1.2), random.uniform(0.9, 1.1)  # noqa: F821

    def changed(image):
        left, top = (int(side * share) for side, share in zip(image.size, sides))
        image = ImageOps.mirror(image.convert("RGB").crop((left, top, image.width - left // 2, image.height - top // 2)))
        return ImageEnhance.Brightness(ImageEnhance.Color(image).enhance(color)).enhance(brightness)

    with Image.open(path) as opened:
        kind, frames, times = opened.format, [], []
        for frame in ImageSequence.Iterator(opened):
            times.append(frame.info.get("duration", 100))
            frames.append(changed(frame))
    film = {"save_all": True, "append_images": frames[1:], "duration": times, "loop": 0} if len(frames) > 1 else {}
    frames[0].save(path, kind, quality=95, **film)


def _sentences(path):
    """About a tenth of the sentences left out; the first line stays."""
    import re

    with open(path, encoding="utf-8") as file:
        first, *lines = file.read().splitlines(keepends=True)
    parts = [part for line in lines for part in re.findall(r"[^。！？!?\n]*[。！？!?\n]+|[^。！？!?\n]+$", line)]
    with open(path, "w", encoding="utf-8") as file:
        file.write(first + "".join(part for part in parts if random.random() < 0.9))  # noqa: F821


def _pages(path):
    """One page left out, which is neither the first nor the last; the others in their order."""
    import pymupdf

    with pymupdf.open(path) as document:
        if len(document) > 2:
            document.delete_page(random.randrange(1, len(document) - 1))  # noqa: F821
        content = document.tobytes(garbage=3, deflate=True)
    with open(path, "wb") as file:
        file.write(content)
