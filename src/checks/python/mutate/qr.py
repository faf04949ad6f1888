"""Wrong QR codes."""

import io

import numpy as np
from common import reference
from PIL import Image

from mutate import Mutant


def mutants(spec, names, candidate):
    right = str(reference(names, spec["expected"]))
    texts = {
        "other text": "https://example.org/other", "last character lost": right[:-1], "reversed text": right[::-1],
        "case changed": right.swapcase(), "a character more": right + "x", "with quotes": f'"{right}"', "with a space": right + " ",
    }  # fmt: skip
    for name, text in texts.items():
        if text and text != right:
            yield Mutant(name, {spec["path"]: _save(_code(text), spec)})
    if spec.get("quiet_zone"):
        yield Mutant("no margin", {spec["path"]: _save(_code(right, border=0), spec)})
        yield Mutant("narrow margin", {spec["path"]: _save(_code(right, border=max(int(spec["quiet_zone"]) - 2, 0)), spec)})
    pair = Image.new("RGB", (820, 410), "white")
    pair.paste(_code(right).resize((400, 400), Image.Resampling.NEAREST), (0, 0))
    pair.paste(_code("a second guess").resize((400, 400), Image.Resampling.NEAREST), (410, 0))
    yield Mutant("two codes", {spec["path"]: _save(pair, spec)})
    yield Mutant("blank", {spec["path"]: _save(Image.new("RGB", (300, 300), "white"), spec)})
    noise = np.random.default_rng(0).integers(0, 2, (40, 40), dtype=np.uint8) * 255
    yield Mutant("noise", {spec["path"]: _save(Image.fromarray(noise).resize((400, 400), 0), spec)})
    half = _code(right)
    yield Mutant("half of it", {spec["path"]: _save(half.crop((0, 0, half.width // 2, half.height)), spec)})


def _code(text, border=4):
    import qrcode

    return qrcode.make(text, border=border).convert("RGB")


def _save(image, spec):
    out = io.BytesIO()
    form = {"jpg": "JPEG", "jpeg": "JPEG"}.get(spec["path"].rsplit(".", 1)[-1].lower(), "PNG")
    image.convert("RGB").save(out, form)
    return out.getvalue()
