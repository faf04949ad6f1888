"""Scores programs of HumanEval+ and MBPP+.

`upstream` is EvalPlus' score: program and expected values are in one process. The other two are the parts of the strict
score: `call` calls the programs in a session that holds no expected value, and `compare` compares what they returned
with what the reference solution returns, in a session that holds no program.
"""
import copy, hashlib, math

import numpy

# EvalPlus' limits: at least 4 seconds for a call, at most 60 for all.
CALL_SECONDS = 4
TOTAL_SECONDS = 60
# With the comparisons, and the digests of large values.
PROCESS_SECONDS = TOTAL_SECONDS + 40

# Encoded values above this many characters leave a session as a digest: HumanEval/15 returns 147 MB in its calls.
LARGE = 1 << 15

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


def load(program, entry):
    space = {}
    with limited(TOTAL_SECONDS):
        exec(program, space)
    return space[entry]


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


def canonical(encoded):
    """The encoding that all equal values have: numbers are of one type, and sets and dictionaries in order."""
    tag = encoded[0]
    if tag == "b":
        return ["i", hex(encoded[1])]
    if tag == "f" and float(encoded[1]).is_integer():
        return ["i", hex(int(float(encoded[1])))]
    if tag in "lt":
        return [tag, [canonical(item) for item in encoded[1]]]
    if tag in "SF":
        return ["S", sorted((canonical(item) for item in encoded[1]), key=json.dumps)]
    if tag == "d":
        return ["d", sorted(([canonical(k), canonical(v)] for k, v in encoded[1]), key=json.dumps)]
    # What is not plain data, and the number that is not one, equal nothing.
    return [tag, os.urandom(16).hex()] if encoded in (["o"], ["f", "nan"]) else encoded


def items_of(value):
    """The type and the items of a list or tuple, or the value itself."""
    for kind, tag in ((list, "l"), (tuple, "t")):
        if isinstance(value, kind):
            return tag, kind.__iter__(value)
    return "", iter([value])


def canonical_text(item):
    """A text that all values have that equal this one, and no others."""
    if type(item) in (list, tuple) and set(map(type, item)) == {str}:
        # What follows would do, ten times slower.
        return type(item).__name__ + json.dumps(item)
    return json.dumps(canonical(encode(item, 1)))


def digest(value):
    tag, items = items_of(value)
    hashed = hashlib.sha256(tag.encode())
    for item in items:
        hashed.update(canonical_text(item).encode())
    return hashed.hexdigest()


def is_large(value):
    length = 0
    for item in items_of(value)[1]:
        length += len(json.dumps(encode(item, 1)))
        if length > LARGE:
            return True
    return False


def carried(value):
    """The encoding of a value; of a large one its digest, which only exactly equal values share. A large one is never
    encoded as a whole: Mbpp/255 returns 128 million items."""
    return ["#", digest(value)] if is_large(value) else encode(value)


def is_digest(result):
    return isinstance(result, list) and result[:1] == ["#"]


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

    return [isolated(lambda: passes(program), PROCESS_SECONDS) is True for program in item["answers"]]


def call(item):
    task = item["task"]
    inputs = inputs_of(task)

    def results(program):
        end = time.monotonic() + TOTAL_SECONDS
        function = load(program, task["entry"])
        found = []
        for given in inputs:
            try:
                called = copy.deepcopy(given)
                with limited(max(0.001, min(CALL_SECONDS, end - time.monotonic()))):
                    value = function(*called)
                returned = time.monotonic()
                found.append(carried(value))
                end += time.monotonic() - returned
            except Exception:
                found.append(["!"])
                # One wrong value decides.
                break
        return found

    return [isolated(lambda: results(program), PROCESS_SECONDS) for program in item["answers"]]


def compare(item):
    task = item["task"]
    inputs = inputs_of(task)
    expected = expected_values(task, inputs)
    # A program may have written anything in place of its results.
    lists = [results for results in item["results"] if isinstance(results, list)]
    large = {number for results in lists for number, found in enumerate(results[:len(inputs)]) if is_digest(found)}
    digests = {number: digest(expected[number]) for number in large}

    def same(number, found):
        if is_digest(found):
            return found[1] == digests[number]
        return agrees(task, inputs[number], decode(found), expected[number], True)

    def passes(results):
        if results is None or len(results) != len(inputs) or results[-1][0] == "!":
            return False
        return all(same(number, found) for number, found in enumerate(results))

    return [isolated(lambda: passes(results), PROCESS_SECONDS) is True for results in item["results"]]


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
