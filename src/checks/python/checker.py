"""The checker's main: runs in a fresh session whose workspace holds the task and the candidate.

    data/, held_out/            the task's files
    task.json                   {"mode", "checks", "reference", "query", "outputs", "formats"}: see `inputs.py`
    candidate/output/…          what the agent left
    candidate/answer.txt        its final message
    candidate/claims.json       its chart records: [{"path", "figure"}]
    candidate/predictions.json  bounded results of models, by path (only for `model`)
    candidate/runs.json         bounded results of programs, by path (only for `program`)
    candidate/calls.json        bounded results of functions, by path of the program (only for `calls`)
    candidates/<n>/…            the same of several candidates (mode `many`)

Writes output/result.json: {"findings": […]} (mode `check`), {"many": [[…], …]} (mode `many`, one list for
each of `candidates` candidates), {"mutants": [[name, […]]]} (mode `audit`),
{"programs": …, "calls": …, "models": …} (mode `prepare`: what the other sandbox needs), {"made": …} (mode `mutate`),
{"fits": true} (mode `fit`: the reference alone), {"unfit": "…"} where the reference says that the files do not suit
the task, or {"error": "…", "stalled": bool} for an error of ours: of the task, or of a machine that was held up.
"""

import functools
import json
import os

import inputs
from common import Candidate, OursError, StalledError, Unfit

MAX_ANSWER = 200_000


def main(root="."):
    """Evaluate and write the result."""
    os.chdir(root)
    try:
        with open("task.json", encoding="utf-8") as file:
            task = json.load(file)
        inputs.describe(task.get("formats", {}))
        result = MODES[task.get("mode", "check")](task)
    except Unfit as error:
        result = {"unfit": str(error)[:2000]}
    except OursError as error:
        result = {"error": str(error)[:2000], "stalled": isinstance(error, StalledError)}
    os.makedirs("output", exist_ok=True)
    # Findings quote the candidate's files, which may hold lone surrogates: the host's parser refuses them.
    with open("output/result.json", "w", encoding="utf-8", errors="replace") as file:
        json.dump(result, file, ensure_ascii=False)


class LoadedCandidate(Candidate):
    """A candidate as its files say. Its JSON is parsed where a check asks for it, which is in the isolated child."""

    def __init__(self, root):
        self.root = root
        with open(os.path.join(root, "answer.txt"), encoding="utf-8", errors="replace", newline="") as file:
            self.answer = file.read(MAX_ANSWER)

    @functools.cached_property
    def claims(self):
        found = self._json("claims")
        return found if isinstance(found, list) else []

    @functools.cached_property
    def predictions(self):
        return self._json("predictions")

    @functools.cached_property
    def runs(self):
        return self._json("runs")

    @functools.cached_property
    def calls(self):
        return self._json("calls")

    def _json(self, name):
        """A JSON file of bounded data from another sandbox; what does not parse is absent."""
        try:
            with open(os.path.join(self.root, name + ".json"), encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError, RecursionError):
            return None


def load(root="candidate"):
    """The candidate in a folder."""
    return LoadedCandidate(root)


def check(task):
    """Findings for one candidate."""
    import evaluate

    return {"findings": evaluate.findings(task, evaluate.run_reference(task["reference"]), load())}


def many(task):
    """Findings for several candidates; the reference runs once."""
    import evaluate

    names = evaluate.run_reference(task["reference"])
    return {"many": [evaluate.findings(task, names, load(f"candidates/{n}")) for n in range(task["candidates"])]}


def fit(task):
    """Whether the files suit the task, as far as the reference says."""
    import evaluate

    evaluate.run_reference(task["reference"])
    return {"fits": True}


def prepare(task):
    """What models and programs are to be run on: nothing of the reference's answers."""
    import evaluate
    import foreign_inputs

    return foreign_inputs.collect(task, evaluate.run_reference(task["reference"]))


def mutate(task):
    """Writes wrong candidates to output/mutants/<n>/; for checks that need another sandbox."""
    import evaluate
    from mutate import audit

    return audit.write(task, evaluate.run_reference(task["reference"]), load())


def audit(task):
    """Findings for every mutant of one candidate; the reference runs once."""
    import evaluate
    from mutate import audit

    return audit.evaluate(task, evaluate.run_reference(task["reference"]), load())


MODES = {"fit": fit, "check": check, "many": many, "prepare": prepare, "mutate": mutate, "audit": audit}

if __name__ == "__main__":
    main()
