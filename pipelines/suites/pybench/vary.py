"""Other inputs of the same kind, by seed: what a model remembers of the published files is of no use.

Runs in a session of its own, in a folder whose `data/` is a copy of the task's inputs, with `SEED` and a
seeded `random`. The reference is computed from what is left there.
"""

import os


def vary(how):
    """Change every file of `data/` that can be changed so."""
    for name in sorted(os.listdir("data")):
        path = os.path.join("data", name)
        kind = os.path.splitext(name)[1].lower()
        if how in ("rows", "fewer") and kind in (".csv", ".xlsx"):
            _table(path, kind, how)
        elif how == "picture" and kind in (".jpeg", ".jpg", ".png", ".webp"):
            _picture(path)


def _table(path, kind, how):
    import pandas

    read, write = (pandas.read_csv, "to_csv") if kind == ".csv" else (pandas.read_excel, "to_excel")
    frame = read(path)
    share = random.uniform(0.8, 0.95)  # noqa: F821
    kept = frame.sample(frac=share, random_state=SEED)  # noqa: F821
    if how == "fewer":
        kept = kept.sort_index()
    if len(kept):
        getattr(kept, write)(path, index=False)


def _picture(path):
    from PIL import Image, ImageEnhance, ImageOps

    with Image.open(path) as opened:
        kind, image = opened.format, opened.convert("RGB")
    width, height = image.size
    left, top = (int(side * random.uniform(0.02, 0.08)) for side in (width, height))  # noqa: F821
    image = ImageOps.mirror(image.crop((left, top, width - left // 2, height - top // 2)))
    image = ImageEnhance.Color(image).enhance(random.uniform(0.8, 1.2))  # noqa: F821
    image = ImageEnhance.Brightness(image).enhance(random.uniform(0.9, 1.1))  # noqa: F821
    image.save(path, kind, quality=95)
