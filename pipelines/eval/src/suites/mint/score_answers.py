"""Scores answers of MINT that must be executed. Runs in the sandbox; `item.json` says what to do.

`code` and `theoremqa` are the authors' scores. The others are the parts of the strict score of programs: `record` lists the
calls that the tests make, with the reference solution; `call` makes them with answers, in a session that holds no
expected value; `replay` runs the tests on what the answers returned, in a session that holds no answer.
"""
import contextlib, io, json, logging, os, random, select, signal, sys, tempfile, time, types

ROOT = "mint"
# As in the authors' `check_correctness`.
SECONDS = 10
SEED = 7


class NoInput(io.StringIO):
    """Output that is dropped, and input that cannot be read."""

    def read(self, *args):
        raise IOError

    readline = readlines = read

    def readable(self):
        return False


def guard():
    """The authors' `reliability_guard`."""
    import builtins, faulthandler, shutil, subprocess

    faulthandler.disable()
    builtins.exit = builtins.quit = builtins.help = None
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("kill system putenv remove removedirs rmdir fchdir setuid fork forkpty killpg rename renames truncate "
                 "replace unlink fchmod fchown chmod chown chroot lchflags lchmod lchown getcwd chdir").split():
        setattr(os, name, None)
    shutil.rmtree = shutil.move = shutil.chown = None
    subprocess.Popen = None
    for name in ("ipdb", "joblib", "resource", "psutil", "tkinter"):
        sys.modules[name] = None


def late(*_):
    raise TimeoutError("Timed out!")


def isolated(function, seconds=SECONDS + 1):
    """What `function` returns in a process of its own, as JSON; None if it ends by itself or too late."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.close(reading)
            exit_now, write = os._exit, os.write
            os.chdir(tempfile.mkdtemp())
            sys.stdout = sys.stderr = sys.stdin = NoInput()
            signal.signal(signal.SIGALRM, late)
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            result = json.dumps(function()).encode()
            signal.setitimer(signal.ITIMER_REAL, 0)
            while result:
                result = result[write(writing, result):]
        except BaseException:
            pass
        finally:
            exit_now(0)
    os.close(writing)
    text, end = b"", time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([reading], [], [], max(0, end - time.monotonic()))
        part = os.read(reading, 1 << 16) if ready else b""
        if not part:
            break
        text += part
    os.close(reading)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    try:
        return json.loads(text)
    except ValueError:
        return None


def encode(value, depth=0):
    """A value as JSON, tagged by type. Values that are not plain data have no type that can be compared."""
    if depth > 20:
        return ["o"]
    if value is None:
        return ["n"]
    if isinstance(value, bool):
        return ["b", bool(value)]
    if isinstance(value, int):
        return ["i", hex(int(value))]
    if isinstance(value, float):
        return ["f", repr(float(value))]
    if isinstance(value, complex):
        return ["c", repr(value.real), repr(value.imag)]
    if isinstance(value, str):
        return ["s", str.__str__(value)]
    if isinstance(value, bytes):
        return ["y", bytes(value).hex()]
    for kind, tag in ((list, "l"), (tuple, "t"), (set, "S"), (frozenset, "F")):
        if isinstance(value, kind):
            return [tag, [encode(item, depth + 1) for item in kind.__iter__(value)]]
    if isinstance(value, dict):
        return ["d", [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in dict.items(value)]]
    if type(value).__module__ == "numpy" and hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        return encode(value.item(), depth + 1)
    return ["o"]


class NotPlain:
    """A value that is not plain data: it equals nothing."""

    __hash__ = None

    def __eq__(self, other):
        return False


def decode(value):
    tag = value[0]
    if tag == "n":
        return None
    if tag in ("b", "s"):
        return {"b": bool, "s": str}[tag](value[1])
    if tag == "i":
        return int(value[1], 16)
    if tag == "f":
        return float(value[1])
    if tag == "c":
        return complex(float(value[1]), float(value[2]))
    if tag == "y":
        return bytes.fromhex(value[1])
    if tag in "ltSF":
        return {"l": list, "t": tuple, "S": set, "F": frozenset}[tag](decode(item) for item in value[1])
    if tag == "d":
        return {decode(k): decode(v) for k, v in value[1]}
    return NotPlain()


def code(item):
    """The authors' score: the program and the tests in one namespace."""
    def passes(answer):
        guard()
        exec(answer + "\n" + item["tests"], {})
        return True

    return [isolated(lambda: passes(answer)) is True for answer in item["answers"]]


def theoremqa(item):
    """The authors' score, by their own module. It evaluates the answer in the scope of the task."""
    for name in ("mint", "mint.tasks", "mint.utils"):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    sys.modules["mint.tasks"].__path__ = [ROOT + "/tasks"]
    sys.modules["mint.utils"].load_file = lambda path: ""
    from mint.tasks.reasoning import TheoremqaTask

    logging.disable(logging.CRITICAL)
    task = TheoremqaTask(**item["row"])
    return [isolated(lambda: task.success(answer)) is True for answer in item["answers"]]


def run_tests(item, functions):
    random.seed(SEED)
    exec(item["tests"], dict(functions))


def record(item):
    calls = []
    space = {}
    exec(item["reference"], space)

    def recorded(name):
        def call(*args, **kwargs):
            calls.append([name, encode(list(args)), encode(kwargs)])
            return function(*args, **kwargs)

        function = space[name]
        return call

    run_tests(item, {name: recorded(name) for name in item["functions"]})
    return calls


def call(item):
    def results(answer):
        space = {}
        exec(answer, space)
        found = []
        for name, args, kwargs in item["calls"]:
            try:
                found.append(encode(space[name](*decode(args), **decode(kwargs))))
            except Exception as error:
                found.append(["!", type(error).__name__])
        return found

    return [isolated(lambda: results(answer)) for answer in item["answers"]]


def replay(item):
    def passes(results):
        calls = iter(zip(item["calls"], results, strict=True))

        def replayed(name):
            def call(*args, **kwargs):
                expected, result = next(calls)
                assert [name, encode(list(args)), encode(kwargs)] == expected, "the tests make other calls"
                assert result[0] != "!", result
                return decode(result)

            return call

        run_tests(item, {name: replayed(name) for name in item["functions"]})
        return next(calls, None) is None

    return [results is not None and isolated(lambda: passes(results)) is True for results in item["results"]]


with open(ROOT + "/item.json", encoding="utf-8") as file:
    item = json.load(file)
kinds = {"code": code, "theoremqa": theoremqa, "record": record, "call": call, "replay": replay}
verdicts = kinds[item["kind"]](item)
with open("output/verdicts.json", "w", encoding="utf-8") as file:
    json.dump(verdicts, file)
