"""Sounds of unknown origin, read within bounds, and what their headers say."""

from common import Fail

MAX_SAMPLES = 40_000_000


def read_sound(full, path):
    """(float array of shape (samples, channels), rate)."""
    import soundfile

    try:
        info = soundfile.info(full)
        if info.frames * info.channels > MAX_SAMPLES or info.channels > 32:
            raise Fail(f"{path} is too long")
        data, rate = soundfile.read(full, dtype="float32", always_2d=True)
        return data, rate
    except Fail:
        raise
    except Exception as error:
        raise Fail(f"{path} is no readable sound: {type(error).__name__}: {error}") from None


def stored_subtype(full):
    """The sample format as the file has it, by libsndfile's name (`PCM_16`)."""
    import soundfile

    return soundfile.info(full).subtype
