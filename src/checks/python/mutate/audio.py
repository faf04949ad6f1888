"""Wrong sounds."""

import io

import numpy as np
from common import reference
from sounds import read_sound

from mutate import Mutant


def mutants(spec, names, candidate):
    import soundfile

    path = spec["path"]
    info = soundfile.info(candidate.file(path))
    data, rate = read_sound(candidate.file(path), path)
    reference(names, spec["expected"])
    for name, new, new_rate in variants(data, rate, spec):
        if new_rate != rate or not _equal(new, data):
            out = io.BytesIO()
            soundfile.write(out, np.clip(new, -1, 1), new_rate, format=info.format, subtype=info.subtype)
            yield Mutant(name, {path: out.getvalue()})
    for subtype in sorted({"PCM_U8", "PCM_24", "FLOAT"} - {spec.get("subtype")}) if spec.get("subtype") and info.format == "WAV" else ():
        out = io.BytesIO()
        soundfile.write(out, data, rate, format=info.format, subtype=subtype)
        yield Mutant(f"stored as {subtype}", {path: out.getvalue()})
    yield Mutant("truncated file", {path: candidate.bytes(path)[: len(candidate.bytes(path)) // 10]})


def variants(data, rate, spec):
    """(name, samples, rate)"""
    n, channels = data.shape
    more = max(0.1, 3 * spec["duration"] * rate / max(n, 1))
    yield "a tenth cut off", data[: max(int(n * (1 - more)), 1)], rate
    yield "a tenth silence added", np.concatenate([data, np.zeros((int(n * more) + 1, channels), data.dtype)]), rate
    yield "silent", np.zeros_like(data), rate
    yield "quieter by 3 dB", data * 10 ** (-(3 + 2 * spec["level"]) / 20), rate
    yield "reversed", data[::-1], rate
    yield "wrong rate", data, rate // 2 if rate > 16000 else rate * 2
    noise = np.random.default_rng(0).normal(size=data.shape).astype(data.dtype)
    level = np.sqrt(np.mean(np.square(data))) + 1e-9
    yield "noise", noise * level, rate
    yield "noise added", data + noise * level * 0.7, rate
    yield "first half twice", np.concatenate([data[: n // 2]] * 2 + [data[: n - 2 * (n // 2)]]), rate
    yield "sped up", data[::2], rate
    yield "shifted by a fifth", np.roll(data, n // 5, axis=0), rate
    if channels > 1:
        yield "one channel", data[:, :1], rate
        yield "one channel silent", data * ([1] + [0] * (channels - 1)), rate
    else:
        yield "two channels", np.repeat(data, 2, axis=1), rate


def _equal(a, b):
    if a.shape != b.shape:
        return False
    return float(np.sqrt(np.mean(np.square(a - b)))) < 0.2 * float(np.sqrt(np.mean(np.square(b)))) + 1e-6
