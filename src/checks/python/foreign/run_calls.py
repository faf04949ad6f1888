"""Runs in a sandbox that holds neither reference nor checker: calls functions of a program, each test in a new process.

Results are written as literals of Python. Only objects of Python's own types are: the checker compares data, and no object
of the program decides whether it is equal to something.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

SECONDS = 20
MAX_RESULT = 200_000  # characters of all results of a test
MAX_DEPTH = 50


def run(path, test):
    """Results of the calls of one test: [{"value": literal} or {"error": reason}], or {"timed_out": true}."""
    with tempfile.TemporaryDirectory() as folder:
        if os.path.isdir("data"):
            os.symlink(os.path.abspath("data"), os.path.join(folder, "data"))
        os.mkdir(os.path.join(folder, "output"))
        shutil.copy(os.path.join("candidate", path), os.path.join(folder, os.path.basename(path)))
        with open(os.path.join(folder, "calls.json"), "w", encoding="utf-8") as file:
            json.dump({"program": os.path.basename(path), **test}, file)
        nowhere = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        try:
            subprocess.run([sys.executable, os.path.abspath(__file__), "calls.json", "results.json"], timeout=SECONDS, cwd=folder, **nowhere)
        except subprocess.TimeoutExpired:
            return {"timed_out": True}
        return read(os.path.join(folder, "results.json"))


def read(path):
    """What the process wrote, which may be anything."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.loads(file.read(2 * MAX_RESULT))
    except (OSError, ValueError, RecursionError):
        return {"results": [{"error": "the program ended without a result"}]}
    return {"results": found}


def results(given):
    """Runs the program, then the setup of the test, then its calls."""
    names = {"__name__": "solution", "__file__": given["program"]}
    try:
        with open(given["program"], "rb") as file:
            exec(compile(file.read(), given["program"], "exec"), names)
        exec(given["setup"], names)
    except BaseException as error:
        return [{"error": described(error)}]
    return [result(call, names) for call in given["calls"]]


def result(call, names):
    try:
        text = repr(plain(eval(call, names), 0))
    except BaseException as error:
        return {"error": described(error)}
    return {"value": text} if len(text) <= MAX_RESULT else {"error": "the result is too long"}


def described(error):
    return f"{type(error).__name__}: {error}"[:300]


def plain(value, depth):
    """A value made of objects of Python's own types only."""
    kind = type(value)
    if depth > MAX_DEPTH:
        raise TypeError("the result is nested too deeply")
    if value is None or kind in (bool, int, float, complex, str, bytes):
        return value
    if kind in (list, tuple, set):
        return kind(plain(item, depth + 1) for item in value)
    if kind is frozenset:
        return {plain(item, depth + 1) for item in value}
    if kind is dict or (kind.__module__ == "collections" and isinstance(value, dict)):
        return {plain(key, depth + 1): plain(item, depth + 1) for key, item in dict.items(value)}
    if kind.__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return plain(value.item(), depth + 1)
    raise TypeError(f"the result holds an object of the type {kind.__name__}, which is not compared")


def main():
    """For every program named in calls.json."""
    with open("calls.json", encoding="utf-8") as file:
        programs = json.load(file)
    found = {path: [run(path, test) for test in tests] for path, tests in programs.items()}
    with open("output/calls.json", "w", encoding="utf-8") as file:
        json.dump(found, file)


def child(calls, found):
    """One test, in a process of its own."""
    with open(calls, encoding="utf-8") as file:
        given = json.load(file)
    text = json.dumps(results(given))
    with open(found, "w", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    child(*sys.argv[1:])
