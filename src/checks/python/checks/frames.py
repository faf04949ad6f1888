"""frames: an animation equals the reference's frames, durations and repetition."""

from common import Fail, Mismatch, OursError, reference, scalar
from pictures import open_picture

from checks.image import compare

MAX_FRAMES = 2000
SLACK = 10  # ms: GIF keeps hundredths of a second


def check(spec, names, candidate):
    expected = reference(names, spec["expected"])
    if not isinstance(expected, (list, tuple)) or not expected:
        raise OursError(f"the reference's `{spec['expected']}` is no list of pictures")
    image, path = open_picture(candidate, spec["path"]), spec["path"]
    if spec.get("endless") and image.info.get("loop") != 0:
        raise Fail(f"{path} does not repeat for ever")
    count = min(getattr(image, "n_frames", 1), MAX_FRAMES)
    durations = _durations(spec, names, len(expected))
    if durations and count < len(expected):
        expected, durations = _merged(expected, durations)
    if count != len(expected):
        raise Mismatch(path, f"{len(expected)} frames", count)
    for i, want in enumerate(expected):
        _seek(image, i, path)
        frame = image.convert("RGBA") if "A" in want.mode else image.convert("RGB")
        compare(frame, want, spec["mean_difference"], f"{path}, frame {i + 1}")
        shown = image.info.get("duration", 0)
        if durations and abs(shown - durations[i]) > SLACK:
            raise Mismatch(f"{path}: duration of frame {i + 1}", f"{durations[i]} ms", f"{shown} ms")


def _merged(frames, durations):
    """Equal neighbors as one frame that lasts as long as they do: what Pillow writes, and it plays the same."""
    kept, times = [frames[0]], [durations[0]]
    for frame, duration in zip(frames[1:], durations[1:]):
        if frame.mode == kept[-1].mode and frame.size == kept[-1].size and frame.tobytes() == kept[-1].tobytes():
            times[-1] += duration
        else:
            kept.append(frame)
            times.append(duration)
    return kept, times


def _seek(image, number, path):
    try:
        image.seek(number)
        image.load()
    except Exception as error:
        raise Fail(f"{path}: frame {number + 1} cannot be read: {type(error).__name__}: {error}") from None


def _durations(spec, names, count):
    if not spec.get("duration"):
        return None
    value = reference(names, spec["duration"])
    values = [scalar(v) for v in value] if isinstance(value, (list, tuple)) else [scalar(value)] * count
    if len(values) != count:
        raise OursError("the reference has another number of durations than of frames")
    return values
