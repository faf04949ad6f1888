"""Makes every mutant of a candidate and evaluates it, the reference run once."""

import contextlib
import glob
import importlib
import os
import shutil
import tempfile

import evaluate as checker
from common import Candidate, Fail, Unproven

from mutate import Mutant

FOREIGN = ("model", "program", "calls")  # what they check runs in another sandbox
MAX_MUTANTS = 200


def mutants(task, names, candidate):
    """Every mutant and every null candidate."""
    out = list(nulls(task))
    for spec in task["checks"]:
        made = importlib.import_module("mutate." + spec["check"]).mutants(spec, _own(spec, names, candidate), candidate)
        what = checker.subject(spec)
        for mutant in made:
            mutant.name = f"{what}: {mutant.name}"
            out.append(mutant)
    return out[:MAX_MUTANTS]


def _own(spec, names, candidate):
    """The reference's names with the alternative that the candidate chose."""
    choices = checker.alternatives(spec, names)
    for choice in choices if len(choices) > 1 else ():
        with contextlib.suppress(Fail, Unproven):
            checker.run_check(spec, choice, candidate)
            return choice
    return choices[0]


def needs_another_sandbox(task, mutant):
    """Whether the mutant's own model or program has to run: the original's results say nothing of it."""
    foreign = {spec["path"] for spec in task["checks"] if spec["check"] in FOREIGN or spec.get("held_out")}
    return any(data is not None and path in foreign for path, data in mutant.files.items())


def nulls(task):
    """What an agent may leave that did nothing."""
    outputs = task["outputs"]
    yield Mutant("null: nothing", answer="", claims=[], alone=True)
    yield Mutant("null: echo of the prompt", answer=task["query"], claims=[], alone=True)
    yield Mutant("null: claims to be finished", answer="Finished: I did all that was asked.", claims=[], alone=True)
    if outputs:
        yield Mutant("null: empty files", {path: b"" for path in outputs}, "", [], True)
        yield Mutant("null: outputs missing", {path: None for path in outputs}, claims=[])
    files = sorted(os.listdir("data")) if os.path.isdir("data") else []
    for name in files[:2]:
        with open(os.path.join("data", name), "rb") as file:
            data = file.read(32 * 1024 * 1024)
        if outputs:
            yield Mutant(f"null: copy of {name}", {path: data for path in outputs}, task["query"], [], True)
        yield Mutant(f"null: dump of {name}", {}, data[:200_000].decode("utf-8", "replace"), [], True)


def overlay(mutant, candidate, folder):
    """A candidate folder with the mutant's changes."""
    source = os.path.join(candidate.root, "output")
    target = os.path.join(folder, "output")
    if os.path.isdir(source) and not mutant.alone:
        shutil.copytree(source, target)
    for path, data in mutant.files.items():
        full = os.path.join(folder, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        if os.path.exists(full):
            os.unlink(full)
        elif data is None:  # the name of an output may hold wildcards
            for old in glob.glob(path, root_dir=folder):
                with contextlib.suppress(IsADirectoryError):
                    os.unlink(os.path.join(folder, old))
        if data is not None:
            with open(full, "wb") as file:
                file.write(data)
    answer = candidate.answer if mutant.answer is None else mutant.answer
    claims = candidate.claims if mutant.claims is None else mutant.claims
    return Candidate(folder, answer, claims, candidate.predictions, candidate.runs, candidate.calls)


def evaluate(task, names, candidate):
    """{"mutants": [[name, findings]]}; the first is the candidate itself."""
    rows = [["original", checker.findings(task, names, candidate)]]
    for mutant in mutants(task, names, candidate):
        if needs_another_sandbox(task, mutant):
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows.append([mutant.name, checker.findings(task, names, overlay(mutant, candidate, folder))])
    return {"mutants": rows}


def write(task, names, candidate):
    """Mutants of models and programs as files, each to be run in the other sandbox."""
    made = []
    for mutant in mutants(task, names, candidate):
        if not needs_another_sandbox(task, mutant):
            continue
        for path, data in mutant.files.items():
            if data is None:
                continue
            full = os.path.join("output", "mutants", str(len(made)), path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as file:
                file.write(data)
        made.append({"name": mutant.name, "files": list(mutant.files)})
    return {"made": made}


