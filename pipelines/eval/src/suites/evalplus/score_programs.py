"""Scores programs of HumanEval+ and MBPP+. Runs in the sandbox; `item.json` says what to do.

`upstream` is EvalPlus' score: program and expected values are in one process. The other two are the parts of the strict
score: `call` calls the programs in a session that holds no expected value, and `compare` compares what they returned
with what the reference solution returns, in a session that holds no program.
"""
import contextlib, copy, io, json, math, os, select, signal, sys, tempfile, time

import numpy

# EvalPlus' limits: at least 4 seconds for a call, at most 60 for all.
CALL_SECONDS = 4
TOTAL_SECONDS = 60

# How MBPP+ 0.2.0 rewrites its inputs, which JSON cannot hold, by number of the task.
TUPLES = {2, 116, 132, 222, 261, 273, 394, 421, 424, 429, 470, 560, 579, 596, 616, 630, 726, 740, 744, 809}
LISTS_OF_TUPLES = {63, 64, 70, 94, 120, 237, 272, 299, 409, 473, 614, 780}
FIRST_LIST_OF_TUPLES = {75, 413, 753}
FIRST_TUPLE = {250, 405, 446, 720, 763, 808}
SECOND_TUPLE = {106, 750}
TUPLES_OF_TUPLES = {259, 445}
DEEP_TUPLES = {580, 615, 791}

# Functions of MBPP+ whose lists have no order, and those of which only matters whether they return something.
SETS = {"similar_elements", "find_char_long", "common_in_nested_lists", "extract_singly", "larg_nnum",
        "find_dissimilar", "Diff"}
NOT_NONE = {"check_str", "text_match_three", "text_starta_endb"}


def deep_tuple(value):
    return tuple(map(deep_tuple, value)) if isinstance(value, list) else value


def arguments(number, given):
    """The arguments of a call of the MBPP+ task with this number."""
    first, rest = given[0], given[1:]
    if number in TUPLES:
        return [tuple(one) for one in given]
    if number in LISTS_OF_TUPLES:
        return [[tuple(item) for item in one] for one in given]
    if number in FIRST_LIST_OF_TUPLES:
        return [[tuple(item) for item in first]] + rest
    if number in FIRST_TUPLE:
        return [tuple(first)] + rest
    if number in SECOND_TUPLE:
        return [first, tuple(rest[0])]
    if number in TUPLES_OF_TUPLES:
        return [tuple(tuple(item) for item in one) for one in given]
    if number in DEEP_TUPLES:
        return list(deep_tuple(given))
    if number == 124:
        return [float(first), complex(rest[0])]
    if number == 252:
        return [complex(first)]
    if number == 278:
        return [tuple(tuple(one) if isinstance(one, list) else one for one in first)]
    if number == 722:
        return [{key: tuple(value) for key, value in first.items()}] + rest
    return given


def inputs_of(task):
    if task["set"] != "mbpp":
        return task["inputs"]
    return [arguments(task["number"], given) for given in task["inputs"]]


class NoInput(io.StringIO):
    """Output that is dropped, and input that cannot be read."""

    def read(self, *args):
        raise IOError

    readline = readlines = read

    def readable(self):
        return False


def late(*_):
    raise TimeoutError


@contextlib.contextmanager
def limited(seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def isolated(function):
    """What `function` returns in a process of its own, as JSON; None if it ends by itself or too late."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        exit_now, write = os._exit, os.write
        try:
            os.setsid()
            os.close(reading)
            os.chdir(tempfile.mkdtemp())
            sys.stdout = sys.stderr = sys.stdin = NoInput()
            signal.signal(signal.SIGALRM, late)
            result = json.dumps(function()).encode()
            while result:
                result = result[write(writing, result):]
        except BaseException:
            pass
        finally:
            exit_now(0)
    os.close(writing)
    text, end = b"", time.monotonic() + TOTAL_SECONDS + 5
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


def load(program, entry):
    space = {}
    with limited(TOTAL_SECONDS):
        exec(program, space)
    return space[entry]


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
        return ["f", float.__repr__(float(value))]
    if isinstance(value, complex):
        return ["c", repr(value.real), repr(value.imag)]
    if isinstance(value, str):
        return ["s", str.__str__(value)]
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
    if tag in "ltSF":
        return {"l": list, "t": tuple, "S": set, "F": frozenset}[tag](decode(item) for item in value[1])
    if tag == "d":
        return {decode(k): decode(v) for k, v in value[1]}
    return NotPlain()


def pyramid(base, height):
    """The surface of a pyramid whose height is that of the apex."""
    return round(base**2 + 2 * base * math.sqrt((base / 2) ** 2 + height**2))


def digit_distance(a, b):
    a, b = str(a), str(b)
    width = max(len(a), len(b))
    return sum(abs(int(x) - int(y)) for x, y in zip(a.zfill(width), b.zfill(width)))


def special(task, given, found, expected):
    """What EvalPlus decides in another way than by equality; None if it decides as usual."""
    entry = task["entry"]
    if task["set"] == "humaneval":
        if entry == "find_zero":
            return abs(sum(c * math.pow(found, i) for i, c in enumerate(*given))) <= task["atol"]
        return None
    if entry == "surface_Area" and found != expected:
        return abs(found - pyramid(*given)) <= task["atol"] or None
    if entry == "digit_distance_nums" and found != expected:
        return found == digit_distance(*given) or None
    if entry in SETS:
        return set(found) == set(expected) or None
    if entry in NOT_NONE:
        wanted = expected is not None
        return bool(found == wanted if isinstance(found, bool) else wanted == (found is not None))
    return None


def is_floats(value):
    if isinstance(value, (list, tuple)) and value:
        return all(isinstance(item, float) for item in value)
    return isinstance(value, float)


def agrees(task, given, found, expected, strict):
    decided = special(task, given, found, expected)
    if decided is not None:
        return decided
    if found == expected:
        return True
    tolerance = task["atol"] or (1e-6 if is_floats(expected) else 0)
    if tolerance == 0 or type(found) is not type(expected):
        return False
    if isinstance(expected, (list, tuple)) and len(found) != len(expected):
        return False
    # EvalPlus takes `[[2.0]]` for `[2.0]`.
    if strict and numpy.shape(found) != numpy.shape(expected):
        return False
    return bool(numpy.allclose(found, expected, rtol=1e-07, atol=tolerance))


def expected_values(task, inputs):
    function = load(task["reference"], task["entry"])
    return [function(*copy.deepcopy(given)) for given in inputs]


def upstream(item):
    task = item["task"]
    inputs = inputs_of(task)
    expected = expected_values(task, inputs)

    def passes(program):
        end = time.monotonic() + TOTAL_SECONDS
        function = load(program, task["entry"])
        for given, value in zip(inputs, expected):
            called = copy.deepcopy(given)
            with limited(max(0.001, min(CALL_SECONDS, end - time.monotonic()))):
                found = function(*called)
            if not agrees(task, given, found, value, False):
                return False
        return True

    return [isolated(lambda: passes(program)) is True for program in item["programs"]]


def call(item):
    task = item["task"]
    inputs = inputs_of(task)

    def results(program):
        end = time.monotonic() + TOTAL_SECONDS
        function = load(program, task["entry"])
        found = []
        for given in inputs:
            try:
                with limited(max(0.001, min(CALL_SECONDS, end - time.monotonic()))):
                    found.append(encode(function(*copy.deepcopy(given))))
            except Exception:
                found.append(["!"])
                # One wrong value decides.
                break
        return found

    return [isolated(lambda: results(program)) for program in item["programs"]]


def compare(item):
    task = item["task"]
    inputs = inputs_of(task)
    expected = expected_values(task, inputs)

    def passes(results):
        if results is None or len(results) != len(inputs) or results[-1][0] == "!":
            return False
        values = zip(inputs, results, expected)
        return all(agrees(task, given, decode(found), value, True) for given, found, value in values)

    return [isolated(lambda: passes(results)) is True for results in item["results"]]


def untagged(value):
    """A number that JSON lacks or that is too large for it, or the object itself."""
    if value.keys() == {"$float"}:
        return float(value["$float"])
    return int(value["$int"]) if value.keys() == {"$int"} else value


with open("data/item.json", encoding="utf-8") as file:
    item = json.load(file, object_hook=untagged)
signal.signal(signal.SIGALRM, late)
verdicts = {"upstream": upstream, "call": call, "compare": compare}[item["mode"]](item)
with open("output/verdicts.json", "w", encoding="utf-8") as file:
    json.dump(verdicts, file)
