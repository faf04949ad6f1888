"""The steps of `just bench teach`: runs in one work folder, each made by a program of ours and resumed by it.

A step that is done is not repeated. A step that was interrupted goes on where it stopped, since data, training, loops and
evaluations have journals or checkpoints of their own.
"""

import json
import math
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

STUDENT = "smollm2-135m-instruct"
ROUNDS = 2
ROW = 2048
"""Tokens of a training row, of which a step has one."""

# What every data set has, unless a table changes it.
COMMON = {
    "seed": 1,
    "query.composed": 0.95,
    "query.renamed": 0.85,
    "query.foreign_names": 0.03,
    "query.imprecise": 0.0,
    "query.typos": 0.0,
    "query.categories": '["chart", "text", "image_audio"]',
    "query.languages": "{ en = 1.0 }",
    # With little data, one idiom teaches more than three.
    "teacher": '{ kind = "expert", recoveries = 0.15, idioms = ["pandas"] }',
    "rollout.format": '"pybench_short"',
}
# The base has the held-out tasks of all tables.
HELD_OUT = (
    "{ test_shares = { files = 0.1, pairs = 0.1, operations = 0.05, templates = 0.02 }, "
    "held_out_templates = 3, held_out_operations = 0.04, held_out_pairs = 0.1 }"
)
ALL_TRAINED = "test_fraction = 0.0, held_out_templates = 0"
BASE = "base"

# How models play, in loops and in evaluations.
PLAY = {
    "format": '"pybench_short"',
    "max_turns": 10,
    "max_identical_turns": 2,
    "repetition_detection": "{ max_pattern_size = 64, min_count = 8 }",
    "code_within_tokens": 320,
}
# Tokens of a reply.
REPLY = 640


@dataclass
class Step:
    """One run. The counts say what it costs."""

    name: str
    command: Callable[[], list]
    is_done: Callable[[], bool]
    tasks: int = 0
    tokens: int = 0
    attempts: int = 0


class Bench:
    """Where runs lie, and how large they are."""

    def __init__(self, root, programs, work, seeds, tokens, tasks, max_tasks):
        self.root, self.programs, self.work = Path(root), Path(programs), Path(work).absolute()
        self.seeds = range(1, seeds + 1)
        self.tokens, self.tasks, self.max_tasks = tokens, tasks, max_tasks

    def program(self, name, *arguments):
        return [str(self.programs / name), *map(str, arguments)]

    def written(self, name, text):
        """A recipe in the work folder."""
        path = self.work / "recipes" / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def model(self, run):
        return self.work / run / "model"

    def trained_by_loop(self, run):
        return self.work / f"{run}-round-{ROUNDS}-train" / "model"

    # --- steps -----------------------------------------------------------------------------------

    def run_of(self, command, name, settings):
        sets = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        return self.program("pybench", command, "quickstart", "--run", name, "--runs-dir", self.work, *sets)

    def data(self, name, changes, tasks=None):
        """A data set; `changes` may be a function, if they depend on earlier steps."""

        def command():
            changed = changes() if callable(changes) else changes
            settings = {**COMMON, "query.tasks": tasks or self.tasks, **changed}
            return self.run_of("synthesize", name, settings)

        dataset = self.work / name / "dataset" / "data"
        return Step(name, command, dataset.is_dir, tasks=tasks or self.tasks)

    def base(self):
        return self.data(BASE, {"shard": HELD_OUT})

    def training_set(self, name, changes=None, tasks=None):
        """A data set that has nothing of what the base holds out."""
        apart = {"query.apart_from": f'["{BASE}"]', "shard": f"{{ {ALL_TRAINED} }}"}
        if callable(changes):
            return self.data(name, lambda: {**apart, **changes()}, tasks)
        return self.data(name, {**apart, **(changes or {})}, tasks)

    def selected(self, name, run, rules):
        """Rows of a data set by the rules of `pybench dataset select`."""
        out = self.work / name

        def command():
            recipe = self.written(name, rules)
            report = self.work / f"{name}.json"
            source = self.work / run
            return self.program(
                "pybench", "dataset", "select", source, "--recipe", recipe, "--out", out, "--report", report
            )

        return Step(name, command, (out / "data").is_dir)

    def rows(self, name, dataset):
        """The path of a data set's shards: that of a run, or of selected rows."""
        folder = self.work / name
        return folder / "dataset" / "data" if dataset == "run" else folder / "data"

    def training_recipe(self, name, data, tokens, seed, weight=1.0):
        held_out = self.rows(BASE, "run")
        return self.written(
            name,
            f'name = "{name}"\n'
            f'extends = "{self.root}/training/recipes/smollm2-composed.toml"\n'
            f'seed = {seed}\nmodel = "{STUDENT}"\n\n'
            f'[[data]]\npath = "{data}"\nprefix = "train-"\nweight = {weight}\n\n'
            f'[held_out]\npath = "{held_out}"\nprefix = "test-"\n\n'
            f"[train]\nmax_steps = {math.ceil(tokens / ROW)}\n",
        )

    def train(self, name, data, tokens, seed):
        def command():
            recipe = self.training_recipe(name, data, tokens, seed)
            return self.program("pybench-train", "run", recipe, "--out", self.work / name)

        return Step(name, command, self.model(name).is_dir, tokens=tokens)

    def loop(self, name, student, tokens, seed, escalation):
        """Rounds on new tasks, from a trained student on; all rounds together train `tokens`."""
        tasks = max(ROUNDS * 100, self.tasks // 4)

        def command():
            replay = self.rows(BASE, "run")
            recipe = self.training_recipe(f"{name}-train", replay, tokens // ROUNDS, seed, weight=0.25)
            sampling = f"{{ max_tokens = {REPLY}, temperature = 0.7 }}"
            settings = {
                **COMMON,
                "seed": 100 + seed,
                "query.tasks": tasks,
                "query.apart_from": f'["{BASE}"]',
                "shard": f"{{ {ALL_TRAINED} }}",
                "teacher": f'{{ kind = "checkpoint", model = "{self.model(student)}", dtype = "bf16" }}',
                "escalation": escalation,
                "goal.keep": '"turns"',
                **{f"rollout.{key}": value for key, value in PLAY.items()},
                "rollout.sampling": sampling,
                "loop": f'{{ rounds = {ROUNDS}, held_out = 0.05, train = "{recipe}" }}',
            }
            return self.run_of("loop", name, settings)

        def is_done():
            report = self.work / name / "report.json"
            return report.is_file() and len(json.loads(report.read_text())["rounds"]) == ROUNDS

        return Step(name, command, is_done, tasks=tasks, tokens=tokens, attempts=tasks + tasks // 6)

    def evaluate(self, name, agents, suites=(), single_reply=False):
        """All agents on the held-out tasks of the base, or on benchmarks."""
        library = "" if suites else f'library = "{self.work / BASE}"\n'
        listed = ", ".join(f'"{suite}"' for suite in suites)
        # A single reply has no format. The limits are the same, so that records can be merged.
        kept = {key: value for key, value in PLAY.items() if key != "format" or not single_reply}
        play = "".join(f"{key} = {value}\n" for key, value in kept.items())
        tokens = 1024 if suites else REPLY

        def command():
            text = (
                f'name = "{name}"\nsuites = [{listed}]\n{library}max_tasks = {self.max_tasks}\n'
                f"single_reply = {str(single_reply).lower()}\n\n[rollout]\n{play}\n"
                f"[rollout.sampling]\nmax_tokens = {tokens}\ntemperature = 0.0\n"
            )
            for label, model in agents.items():
                text += f'\n[agents.{label}]\nkind = "checkpoint"\nmodel = "{model}"\ndtype = "bf16"\n'
            recipe = self.written(name, text)
            fetch = ["--fetch"] if suites else []
            return self.program("pybench", "eval", recipe, "--run", name, "--runs-dir", self.work, *fetch)

        splits = len(suites) or 4
        attempts = len(agents) * splits * self.max_tasks
        return Step(name, command, lambda: is_measured(self.records(name), agents), attempts=attempts)

    def records(self, run):
        return self.work / run / "results.jsonl"


def is_measured(records, agents):
    """Whether an evaluation of these agents has ended, and no attempt failed for reasons of ours."""
    if not records.is_file():
        return False
    with records.open() as lines:
        if set(agents) - set(json.loads(next(lines))["agents"]):
            return False
        return all(json.loads(line)["outcome"]["outcome"] != "infrastructure" for line in lines)


def steps_of(metrics):
    return [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.is_file() else []


# --- what it costs ---------------------------------------------------------------------------------

# Measured on two cores: docs/benchmarks/teaching.md.
TOKENS_PER_SECOND = 146.0
SECONDS_PER_ATTEMPT = 3.2
SECONDS_PER_TASK = 0.5


def speeds(work):
    """Trained tokens per second and seconds per attempt: those of this work folder, where something was measured."""
    steps = [step for path in sorted(Path(work).glob("*/metrics.jsonl")) for step in steps_of(path)]
    seconds = sum(step["seconds"] for step in steps)
    tokens = sum(step["tokens"] for step in steps) / seconds if seconds else TOKENS_PER_SECOND
    spent = []
    for path in sorted(Path(work).glob("*/results.jsonl")):
        with path.open() as lines:
            next(lines, None)
            spent += [json.loads(line)["seconds"] for line in lines]
    return tokens, sum(spent) / len(spent) if spent else SECONDS_PER_ATTEMPT


def hours(step, measured):
    tokens, attempt = measured
    seconds = step.tokens / tokens + step.attempts * attempt + step.tasks * SECONDS_PER_TASK
    return seconds / 3600


def plan(steps, measured):
    """What is left to do, as text."""
    lines, left = [], 0.0
    for step in steps:
        takes = hours(step, measured)
        done = step.is_done()
        left += 0.0 if done else takes
        lines.append(
            f"{step.name:<24} {step.tasks:>7,} tasks {step.tokens:>11,} tokens {step.attempts:>7,} attempts  "
            + ("done" if done else f"{takes:6.1f} h")
        )
    tokens, attempt = measured
    lines.append(f"{left:.1f} hours are left, at {tokens:.0f} trained tokens a second and {attempt:.1f} s an attempt")
    return "\n".join(lines)


def output(command, root):
    """What a program prints."""
    return subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout


def keep_sizes(bench):
    """Refuses sizes other than those with which the runs of this folder were made."""
    sizes = {"tokens": bench.tokens, "tasks": bench.tasks, "max_tasks": bench.max_tasks}
    path = bench.work / "sizes.json"
    begun = json.loads(path.read_text()) if path.is_file() else sizes
    if begun != sizes:
        before = " ".join(f"--{key.replace('_', '-')} {value}" for key, value in begun.items())
        raise SystemExit(f"teach: the runs in {bench.work} were made with {before}; use these, or another folder with --work")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(sizes) + "\n")


def run(steps, root):
    """Makes what is not done yet.

    Returns the exit code of the step that failed, or 0.
    """
    for step in steps:
        if step.is_done():
            continue
        print(f"teach: {step.name}", flush=True)
        code = subprocess.run(step.command(), cwd=root).returncode
        if code:
            print(f"teach: {step.name} ended with code {code}; the same command goes on with it")
            return code
    return 0
