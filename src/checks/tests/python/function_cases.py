"""Tests of functions: (name, reference, right programs, wrong programs)."""

SOURCE = "def twice(x):\n    return 2 * x\n\n\ndef names(rows):\n    return sorted({row[0] for row in rows})\n"
ASSERTED = """expected = ref.assertions("import math\\nbox = Box(3)", [
    "assert twice(4) == 8",
    "assert math.isclose(twice(0.1), 0.2, rel_tol=1e-9)",
    "assert names([('b', 1), ('a', 2), ('b', 3)]) == ['a', 'b']",
    "assert set(names([('b', 1)])) == {'b'} and not twice(0)",
    "assert twice(twice(box.size)) == 12",
    "assert sorted([twice(2), twice(1)], key=lambda n: -n) == [4, 2]",
    "assert all(n % 2 == 0 for n in [twice(1), twice(2)])",
])
"""
BOX = "class Box:\n    def __init__(self, size):\n        self.size = size\n\n\n"
CALLED = """expected = ref.calls_of('pairs', '{"inputs": [[[3, 1, 2], 1], [[], 1], [[5], 0]], "outputs": [[[[1, 2], [2, 3]]], [], [[]]]}')\n"""
PAIRS = "def pairs(values, gap):\n    values = sorted(values)\n    return [(a, b) for a, b in zip(values, values[1:]) if b - a == gap]\n"
INSIDE = "class Solution:\n" + "".join(f"    {line}\n" for line in PAIRS.replace("def pairs(values", "def pairs(self, values").splitlines())

EVERYTHING = "class All(int):\n    def __eq__(self, other):\n        return True\n    __hash__ = int.__hash__\n    def __mod__(self, other):\n        return self\n"
WRONG = {
    "off by one": SOURCE.replace("2 * x", "2 * x + 1"),
    "ends before": "import sys\nsys.exit(0)\n" + SOURCE,
    "ends within": SOURCE + "\n\ndef twice(x):\n    import sys\n    sys.exit(0)\n",
    "ends at once": SOURCE + "\n\ndef twice(x):\n    import os\n    os._exit(0)\n",
    "equals everything": EVERYTHING + SOURCE.replace("return 2 * x", "return All(2 * x)"),
    "equals everything, no number": "class All:\n    __eq__ = lambda s, o: True\n    __abs__ = __sub__ = __mod__ = lambda s, *o: s\n    __bool__ = lambda s: True\n" + SOURCE.replace("return 2 * x", "return All()"),
    "prints": "print('assert twice(4) == 8')\nprint([8, 0.2])\n",
    "prints within": SOURCE.replace("return 2 * x", "print(2 * x)"),
    "patches": SOURCE.replace("return 2 * x", "return 1") + "\nimport builtins, json\nbuiltins.repr = lambda value: '8'\njson.dumps = lambda value: '[{\"value\": \"8\"}]'\n",
    "asks its callers": SOURCE.replace("return 2 * x", "import sys\n    frame = sys._getframe()\n    while frame:\n        found = frame.f_locals.get('expected', frame.f_locals.get('holds'))\n        if found is not None:\n            return found\n        frame = frame.f_back\n    return -1"),
    "reads the disk": SOURCE.replace("return 2 * x", "import glob\n    for path in glob.glob('/tmp/**/task.json', recursive=True) + glob.glob('../*'):\n        pass\n    return 7"),
    "is deep": SOURCE.replace("return 2 * x", "found = []\n    for _ in range(5000):\n        found = [found]\n    return found"),
    "is long": SOURCE.replace("return 2 * x", "return [x] * 10**6"),
    "raises": SOURCE.replace("return 2 * x", "raise SystemError(x)"),
    "is missing": "def other():\n    return 1\n",
    "is no Python": ")(",
}
CASES = (
    ("assertions", ASSERTED, {"plain": BOX + SOURCE, "prints too": BOX + "print('hello')\n" + SOURCE, "numpy": BOX + "import numpy\n" + SOURCE.replace("2 * x", "numpy.float64(2 * x) if isinstance(x, float) else 2 * x")}, {name: BOX + source for name, source in WRONG.items()}),
    ("function", CALLED, {"function": PAIRS, "method": INSIDE, "both": PAIRS + INSIDE}, {"gap": PAIRS.replace("== gap", "> gap"), "text": PAIRS.replace("return [", "return str([").replace("gap]", "gap])"), "nothing": "def pairs(values, gap):\n    pass\n"}),
)  # fmt: skip
UNFIT = {
    "x = 1": "no single `assert`", "assert (": "no Python", "assert 1 == 1": "uses nothing of the program", "assert twice(1) == 2; twice(3)": "no single",
    "assert all(twice(n) > n for n in [1, 2])": "variable of a comprehension", "assert sorted([1], key=lambda v: twice(v)) == [1]": "or a lambda",
}  # fmt: skip
