# The random state of the recorded session, so that the cells below show what they showed there.
import os, random, sys


def _as_recorded(seed):
    system, plain, streams = os.urandom, random.Random.seed, {}

    def drawn_by():
        """A module while it is imported, "" for a cell and what it calls, None for the notebook server."""
        frame = sys._getframe(1)
        while frame is not None:
            name = frame.f_globals.get("__name__") or ""
            if name.partition(".")[0] in ("ipykernel", "jupyter_client", "tornado", "zmq"):
                return None
            if frame.f_code.co_name == "<module>":
                spec = frame.f_globals.get("__spec__")
                if getattr(spec, "_initializing", False):
                    return spec.name
                return ""
            frame = frame.f_back
        return ""

    def stream(name):
        if name not in streams:
            streams[name] = random.Random(f"{seed} {name}" if name else seed)
        return streams[name]

    def urandom(count):
        name = drawn_by()
        return system(count) if name is None else stream(name).randbytes(count)

    def begin(generator, a=None, version=2):
        if a is None:
            name = drawn_by()
            a = int.from_bytes(system(8), "big") if name is None else stream(name).getrandbits(64)
        plain(generator, a, version)

    os.urandom = random._urandom = urandom
    random.Random.seed = begin
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        return
    numpy.random.seed(seed % 2**32)


_as_recorded(SEED)
