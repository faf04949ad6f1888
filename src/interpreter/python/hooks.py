"""What a session changes in Python itself: random state from its seed, dates of files, the recorder of
charts, marks where children write. Made before the session is known (`Hooks`), in force from `begin` on."""

import importlib.util
import os
import random
import sys
import tempfile


class AfterImport:
    """A finder that lets others find a module and calls a function once it has been executed."""

    def __init__(self, callbacks):
        self.callbacks = callbacks

    def find_spec(self, name, path=None, target=None):
        callback = self.callbacks.pop(name, None)
        if callback is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            callback(module)

        spec.loader.exec_module = exec_module
        return spec


def importing():
    """The module whose import is drawing a random number; empty when a cell is."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>":
            spec = frame.f_globals.get("__spec__")
            if getattr(spec, "_initializing", False):
                return spec.name
        frame = frame.f_back
    return ""


class Randomness:
    """All random state follows from the seed: that of generators made without one, `os.urandom` and
    with it `secrets`, `uuid` and numpy's generators. With `system`, only `random` and numpy's global
    generator start at the seed, and whatever asks the system for randomness gets it.

    What modules draw while they are imported comes from a stream of their own, so that it does not
    matter when they are; what they drew before the seed was known is drawn again.
    """

    def __init__(self):
        self.seed = None
        self.streams = {}
        self.early = []
        self.system = False
        self.urandom, self.plain = os.urandom, random.Random.seed

        def seed(generator, a=None, version=2):
            if a is None:
                self.draw(lambda stream: self.plain(generator, stream.getrandbits(64)))
            else:
                self.plain(generator, a, version)

        random.Random.seed = seed
        os.urandom = random._urandom = lambda count: self.draw(lambda stream: stream.randbytes(count))

    def begin(self, seed, system):
        self.seed, self.system = seed, system
        if system:
            os.urandom = random._urandom = self.urandom
            random.Random.seed = self.plain
        self.streams.clear()
        for module, use in self.early:
            use(self.stream(module))
        self.early.clear()
        random.seed(seed)

    def draw(self, use):
        module = importing()
        if self.seed is None:
            self.early.append((module, use))
        return use(self.stream(module))

    def stream(self, module):
        if self.system:
            return random.SystemRandom()
        if module not in self.streams:
            self.streams[module] = random.Random(f"{self.seed} {module}" if module else self.seed or 0)
        return self.streams[module]


def quiet(module):
    """It says how long its dictionary took to load: seconds in one tier, nothing where it is loaded before."""
    module.setLogLevel("WARNING")


class Hooks:
    def __init__(self, wire):
        # Not above: exported tasks have a copy of this file without that one.
        from . import dates

        self.wire, self.dates = wire, dates
        self.randomness = Randomness()
        self.after = {
            "numpy.random.mtrand": self.seed_numpy,
            "matplotlib.figure": self.record_charts,
            "wordcloud.wordcloud": self.record_clouds,
            "jieba": quiet,
            "xlsxwriter.core": self.date("set_xlsxwriter"),
            "openpyxl.packaging.core": self.date("set_openpyxl_properties"),
            "openpyxl.writer.excel": self.date("set_openpyxl_writer"),
        }
        sys.meta_path.insert(0, AfterImport(dict(self.after)))

    def begin(self, seed, system):
        """The session is known."""
        self.randomness.begin(seed, system)
        if not system:
            self.dates.set_epoch()
        for name, hook in self.after.items():
            if name in sys.modules:
                hook(sys.modules[name])
        tempfile.tempdir = tempfile._name_sequence = None
        self.tell_of_children()

    def seed_numpy(self, module):
        module.seed((self.randomness.seed or 0) % 2**32)

    def date(self, change):
        """A hook that fixes the dates of files, unless the session is a real one or not known yet."""

        def hook(module):
            if self.randomness.seed is not None and not self.randomness.system:
                getattr(self.dates, change)(module)

        return hook

    def record_charts(self, _module):
        """Installs the recorder as soon as figures can exist, so that nothing is paid without them."""
        from . import charts

        charts.install(self.wire.send_chart)

    def record_clouds(self, module):
        from . import clouds

        clouds.install(module, self.wire.send_chart)

    def tell_of_children(self):
        """A child may write to either stream: tell where each stands before it starts."""

        def audit(event, _args):
            if event in ("subprocess.Popen", "os.system", "os.posix_spawn") and self.wire.last is not None:
                self.wire.mark(audit)

        sys.addaudithook(audit)
