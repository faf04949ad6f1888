"""Wrong animations."""

import io

import numpy as np
from PIL import Image, ImageOps, ImageSequence

from mutate import Mutant


def mutants(spec, names, candidate):
    path = spec["path"]
    with Image.open(candidate.file(path)) as image:
        form = image.format
        read = [(frame.convert("RGBA"), frame.info.get("duration", 100)) for frame in ImageSequence.Iterator(image)]
    frames, times = [f for f, _ in read], [t for _, t in read]
    arrays = [np.asarray(f) for f in frames]
    still = all(np.array_equal(a, b) for a, b in zip(arrays, arrays[::-1]))
    sets = {
        "last frame dropped": (frames[:-1], times[:-1]), "first frame dropped": (frames[1:], times[1:]),
        "first frame only": (frames[:1], times[:1]), "half of the frames": (frames[::2], times[::2]),
        "mirrored": ([f.transpose(Image.Transpose.FLIP_LEFT_RIGHT) for f in frames], times),
        "rotated by 180°": ([f.rotate(180) for f in frames], times),
        "smaller": ([f.resize((max(f.width // 2, 1), max(f.height // 2, 1))) for f in frames], times),
        "inverted": ([ImageOps.invert(f.convert("RGB")).convert("RGBA") for f in frames], times),
        "one frame blank": ([*frames[:-1], Image.new("RGBA", frames[0].size, (250, 10, 250, 255))], times),
        "blank": ([Image.new("RGBA", frames[0].size, (i * 7 % 256, 40, 40, 255)) for i in range(len(frames))], times),
        "first frame repeated": ([frames[0]] * len(frames), times),
        "a frame more": ([*frames, Image.new("RGBA", frames[0].size, (1, 250, 3, 255))], [*times, times[-1]]),
    }  # fmt: skip
    if not still:
        sets["reversed"] = (frames[::-1], times[::-1])
    if spec.get("duration"):
        sets["twice as slow"] = (frames, [2 * t + 20 for t in times])
    if spec.get("endless"):
        yield Mutant("played once", {path: encode(frames, times, form, loop=1)})
    for name, (new, durations) in sets.items():
        same = len(new) == len(frames) and all(np.array_equal(np.asarray(a), b) for a, b in zip(new, arrays)) and durations == times
        if new and not same:
            yield Mutant(name, {path: encode(new, durations, form)})


def encode(frames, durations, form, loop=0):
    """Bytes of an animation."""
    out = io.BytesIO()
    extra = {"lossless": True} if form == "WEBP" else {}
    frames[0].save(out, form, save_all=True, append_images=frames[1:], duration=durations, loop=loop, **extra)
    return out.getvalue()
