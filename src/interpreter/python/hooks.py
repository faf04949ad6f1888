"""What happens when certain modules are first imported: seeding, and the recorder of charts."""

import importlib.util
import os
import random
import sys


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


def seed_everything(seed):
    """All random state follows from the seed: the module's, that of generators made without a seed,
    and numpy's once it is imported."""
    source = random.Random(seed)
    plain = random.Random.seed

    def seed_from_source(self, a=None, version=2):
        plain(self, source.getrandbits(64) if a is None else a, version)

    random.Random.seed = seed_from_source
    random.seed(seed)
    os.urandom = source.randbytes  # uuid, secrets

    def mtrand(module):
        module.seed(seed % 2**32)

    def bit_generator(module):
        module.randbits = source.getrandbits

    return {"numpy.random.mtrand": mtrand, "numpy.random.bit_generator": bit_generator}


def charts(wire):
    """Installs the recorder as soon as figures can exist, so that nothing is paid without them."""

    def emit(path, record):
        wire.send("chart", path=path, figure=record)

    def install(_module):
        from . import charts as recorder

        recorder.install(emit)

    def install_clouds(module):
        from . import clouds

        clouds.install(module, emit)

    return {"matplotlib.figure": install, "wordcloud.wordcloud": install_clouds}


def tell_of_children(wire):
    """A child may write to either stream: tell where each stands before it starts."""

    def audit(event, _args):
        if event in ("subprocess.Popen", "os.system", "os.posix_spawn") and wire.last is not None:
            wire.mark(audit)

    sys.addaudithook(audit)


def install(seed, wire):
    """Everything in this module."""
    tell_of_children(wire)
    sys.meta_path.insert(0, AfterImport({**seed_everything(seed), **charts(wire)}))
