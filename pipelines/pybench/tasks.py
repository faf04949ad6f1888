"""The task files and the upstream data they speak of."""

import json
import os
import random
import shutil
import tomllib
from pathlib import Path

import blake3
from children import call

HERE = Path(__file__).resolve().parent
DEFAULTS = {
    "table": {"rows": "exact", "rtol": 1e-6, "atol": 0.0}, "number": {"rtol": 1e-6, "atol": 0.0}, "values": {"rtol": 1e-6},
    "json": {"rtol": 1e-6}, "image": {"mean_difference": 2.0}, "frames": {"mean_difference": 2.0}, "plot": {"rtol": 1e-3},
    "audio": {"duration": 0.05, "level": 0.5, "correlation": 0.99},
}  # fmt: skip


class Wrong(Exception):
    """A task file or a solution of ours is wrong."""


def ranges(text):
    """`2-51,60` as a set of numbers."""
    out = set()
    for part in text.split(","):
        low, _, high = part.partition("-")
        out |= set(range(int(low), int(high or low) + 1))
    return out


def load(wanted=None):
    """Every task file, in order."""
    found = []
    for path in sorted((HERE / "tasks").glob("*.toml")):
        task = tomllib.loads(path.read_text(encoding="utf-8"))
        if task["index"] != int(path.stem):
            raise Wrong(f"{path.name}: index {task['index']}")
        for check in task.get("check", []):
            for key, value in DEFAULTS.get(check["check"], {}).items():
                check.setdefault(key, value)
        if wanted is None or task["index"] in wanted:
            found.append(task)
    return found


class Bench:
    """The upstream files: prompts (for the echo agent only) and inputs."""

    def __init__(self, folder):
        self.data = folder / "data" if (folder / "data").is_dir() else folder
        listed = json.loads((self.data / "meta" / "task.json").read_text(encoding="utf-8"))
        self.queries = {int(row["index"]): row["user"] for row in listed}

    def query(self, index):
        return self.queries[index]

    def stage(self, task, folder, seed):
        """A folder with `data/` (and `held_out/`): only this task's inputs, perturbed where it says so."""
        (folder / "data").mkdir(parents=True)
        for path, digest in task.get("inputs", {}).items():
            source = self.data / Path(path).name
            if not source.is_file():
                raise Wrong(f"{path} is missing")
            if blake3.digest(source.read_bytes()) != digest:
                raise Wrong(f"{path} is another file than the task was written for")
            shutil.copyfile(source, folder / path)
        if "perturb" in task:
            call(lambda: perturb(task["perturb"], folder, seed), 120, "perturb")
        return folder


def perturb(code, folder, seed):
    """Change the inputs in place, by seed; may withhold rows under held_out/."""
    os.chdir(folder)
    exec(compile(code, "perturb.py", "exec"), {"SEED": seed, "random": random.Random(seed)})
