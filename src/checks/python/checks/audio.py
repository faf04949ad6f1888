"""audio: a sound equals the reference: sample format, rate, channels, duration, level, samples."""

import numpy as np
from common import Fail, Mismatch, OursError, reference
from sounds import read_sound, stored_subtype

SILENT = 1e-5


def check(spec, names, candidate):
    wanted, rate = _expected(reference(names, spec["expected"]))
    path = spec["path"]
    found, found_rate = read_sound(candidate.file(path), path)
    stored = stored_subtype(candidate.file(path))
    if spec.get("subtype") and stored != spec["subtype"]:
        raise Mismatch(path, f"samples of the format {spec['subtype']}", stored)
    if found_rate != rate:
        raise Mismatch(path, f"{rate} samples per second", found_rate)
    if found.shape[1] != wanted.shape[1]:
        raise Mismatch(path, f"{wanted.shape[1]} channels", found.shape[1])
    seconds, expected = len(found) / rate, len(wanted) / rate
    if abs(seconds - expected) > spec["duration"] + 1e-9:
        raise Mismatch(path, f"{expected:.3f} s", f"{seconds:.3f} s")
    for channel in range(wanted.shape[1]):
        _channel(spec, path, channel, found[:, channel], wanted[:, channel], rate)


def _expected(value):
    try:
        samples, rate = value
        samples = np.asarray(samples, dtype=np.float32)
        return (samples[:, None] if samples.ndim == 1 else samples), int(rate)
    except (TypeError, ValueError) as error:
        raise OursError(f"the reference's sound is no pair of samples and rate: {error}") from None


def _channel(spec, path, channel, found, wanted, rate):
    levels = [float(np.sqrt(np.mean(np.square(a, dtype=np.float64)))) if len(a) else 0.0 for a in (found, wanted)]
    if not np.isfinite(levels[0]):
        raise Fail(f"{path}: holds samples that are no numbers")
    if levels[1] < SILENT or levels[0] < SILENT:
        if (levels[1] < SILENT) != (levels[0] < SILENT):
            raise Fail(f"{path}: channel {channel + 1} is {'silent' if levels[0] < SILENT else 'not silent'}")
        return
    decibels = 20 * np.log10(levels[0] / levels[1])
    if abs(decibels) > spec["level"]:
        raise Fail(f"{path}: channel {channel + 1} is {decibels:+.2f} dB off")
    # Encoders add a little silence at the start.
    likeness = correlation(found, wanted, int(spec["shift"] * rate))
    if likeness < spec["correlation"]:
        raise Fail(f"{path}: channel {channel + 1} correlates by {likeness:.6f}, {spec['correlation']} expected")


def correlation(a, b, most):
    """The largest correlation after a shift of at most `most` samples."""
    from scipy.fft import irfft, next_fast_len, rfft

    size = next_fast_len(len(a) + len(b))
    cross = irfft(rfft(a, size) * np.conj(rfft(b, size)), size)
    shifts = np.concatenate([cross[: most + 1], cross[-most:] if most else cross[:0]])
    norm = np.sqrt(np.sum(np.square(a, dtype=np.float64)) * np.sum(np.square(b, dtype=np.float64)))
    return float(shifts.max() / norm)
