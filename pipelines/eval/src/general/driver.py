"""Calls a function with inputs, one after the other, and writes what it returned, tagged by type.

It runs in a sandbox that holds no expected value: the host compares.
"""
import json
import signal
import sys


def encode(value, depth=0):
    if depth > 20:
        return ["o", "nested too deep"]
    if value is None:
        return ["n"]
    kind = type(value)
    if kind is bool:
        return ["b", value]
    if kind is int:
        return ["i", str(value)] if abs(value) < 10**4000 else ["o", "an integer of many digits"]
    if kind is float:
        return ["f", repr(value)]
    if kind is complex:
        return ["c", repr(value.real), repr(value.imag)]
    if kind is str:
        return ["s", value[:100000]]
    if kind in (list, tuple) and len(value) <= 100000:
        return ["l" if kind is list else "t", [encode(item, depth + 1) for item in value]]
    if kind in (set, frozenset) and len(value) <= 100000:
        return ["S", sorted((encode(item, depth + 1) for item in value), key=repr)]
    if kind is dict and len(value) <= 100000:
        pairs = [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in value.items()]
        return ["d", sorted(pairs, key=repr)]
    return ["o", repr(value)[:200]]


def late(*_):
    raise TimeoutError("time is up")


def main():
    with open("data/call.json") as file:
        call = json.load(file)
    if isinstance(call["inputs"], str):
        # As a program of tests has them; `inf` and `nan` are what such a program imports.
        call["inputs"] = eval(call["inputs"], {"inf": float("inf"), "nan": float("nan")})
    space = {"__name__": "solution"}
    try:
        with open("data/program.py") as file:
            exec(compile(file.read(), "program.py", "exec"), space)
        function = space[call["entry"]]
    except BaseException as error:
        results = [["!", type(error).__name__]] * len(call["inputs"])
    else:
        results = []
        signal.signal(signal.SIGALRM, late)
        for arguments in call["inputs"]:
            signal.setitimer(signal.ITIMER_REAL, call["seconds"])
            try:
                result = encode(function(*arguments))
            except BaseException as error:
                result = ["!", type(error).__name__]
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            results.append(result)
    with open("output/results.json", "w") as file:
        json.dump(results, file)


sys.setrecursionlimit(10000)
main()
