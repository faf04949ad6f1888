"""Runs in a sandbox that holds neither reference nor checker: a program, once per input, output bounded."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

SECONDS = 20
MAX_OUTPUT = 100_000


def run(path, args, stdin):
    """One run in a folder of its own, which sees ./data."""
    with tempfile.TemporaryDirectory() as folder:
        if os.path.isdir("data"):
            os.symlink(os.path.abspath("data"), os.path.join(folder, "data"))
        os.mkdir(os.path.join(folder, "output"))
        name = os.path.join(folder, os.path.basename(path))
        shutil.copy(os.path.join("candidate", path), name)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            try:
                process = subprocess.run([sys.executable, name, *args], input=stdin.encode(), stdout=out, stderr=err, timeout=SECONDS, cwd=folder)
                result = {"exit": process.returncode}
            except subprocess.TimeoutExpired:
                result = {"timed_out": True}
            return {**result, "stdout": text(out), "stderr": text(err)[-500:]}


def text(file):
    """The first characters of what was written."""
    file.seek(0)
    return file.read(MAX_OUTPUT).decode("utf-8", "replace")


def main():
    """For every program named in programs.json."""
    with open("programs.json", encoding="utf-8") as file:
        programs = json.load(file)
    results = {path: [run(path, r["args"], r["stdin"]) for r in runs] for path, runs in programs.items()}
    with open("output/runs.json", "w", encoding="utf-8") as file:
        json.dump(results, file)


if __name__ == "__main__":
    sys.exit(main())
