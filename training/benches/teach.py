"""`just bench teach TABLE`: makes what a table needs, one run after another, and prints the table.

    just bench teach cells --dry-run                                  # what is left, with hours
    just bench teach cells --tokens 1000000 --seeds 3                 # goes on where it was stopped
    just bench teach cells --out docs/benchmarks/teaching-cells.md    # also writes the table to a file

Runs lie in data/runs/teach, where the tables share them.
"""

import argparse
import datetime
import json
import os
import platform
import shlex
import sys
from pathlib import Path

import teach_steps as steps
import teach_tables as tables
from teach_steps import BASE, ROUNDS, STUDENT, Bench

FULL = "full"
CORRECTIONS = '[{ kind = "correction", idioms = ["pandas"] }]'
CATEGORIES = ("chart", "text", "image_audio")
CURVE = (250, 1000, 4000)
SHORT = 12
"""Characters of a task's id in records."""
GENERAL = ("humaneval", "mbpp", "gsm8k", "mmlu")


def by_seed(bench, name):
    return [f"{name}-{seed}" for seed in bench.seeds]


def sft(bench, name, dataset, kind="run"):
    """Training runs on a data set, one a seed."""
    rows = bench.rows(dataset, kind)
    return [bench.train(f"{name}-{seed}", rows, bench.tokens, seed) for seed in bench.seeds]


def loops(bench, name, escalation):
    """Half of the tokens on the base, the other half in a loop that begins there."""
    made = []
    for seed in bench.seeds:
        made.append(bench.train(f"half-{seed}", bench.rows(BASE, "run"), bench.tokens // 2, seed))
        made.append(bench.loop(f"{name}-{seed}", f"half-{seed}", bench.tokens // 2, seed, escalation))
    return made


def models(bench, names, looped=()):
    """The models of groups of runs by their label."""
    trained = {label: bench.model(label) for name in names for label in by_seed(bench, name)}
    return trained | {label: bench.trained_by_loop(label) for name in looped for label in by_seed(bench, name)}


def measured(bench, name, runs, groups):
    """The report on evaluations in which the seeds of a group are one agent."""
    out = bench.work / "tables" / name
    out.mkdir(parents=True, exist_ok=True)
    header, attempts = tables.pooled([bench.records(run) for run in runs], groups)
    return reported(bench, out, header, attempts)


def reported(bench, out, header, attempts):
    records = out / "results.jsonl"
    tables.write(records, header, attempts)
    return tables.report(bench.programs / "pybench", records, out / "report")


# --- the tables: each has its steps, and what it says once they are done -------------------------------


class Cells:
    """Bare, scaffold, SFT, and SFT + loop at equal tokens, by what training rows lack of the tasks."""

    def steps(self, bench):
        agents = {"scaffold": STUDENT, **models(bench, ["sft"], ["loop"])}
        return [
            bench.base(),
            *sft(bench, "sft", BASE),
            *loops(bench, "loop", CORRECTIONS),
            bench.evaluate("bare", {"bare": STUDENT}, single_reply=True),
            bench.evaluate("cells", agents),
        ]

    def text(self, bench):
        groups = {"bare": ["bare"], "scaffold": ["scaffold"]}
        groups |= {name: by_seed(bench, name) for name in ("sft", "loop")}
        found = measured(bench, "cells", ["bare", "cells"], groups)
        pairs = [("sft", "scaffold"), ("loop", "scaffold"), ("loop", "sft")]
        return tables.rates(found, groups) + "\n" + tables.gains(found, pairs)


class Curves:
    """Pass rate by the number of training rows, of templates and of compositions, at equal tokens."""

    kinds = {"compositions": 1.0, "templates": 0.0}

    def names(self):
        return [f"{kind}-{rows}" for kind in self.kinds for rows in CURVE]

    def steps(self, bench):
        made = [bench.base()]
        for kind, composed in self.kinds.items():
            # Some tasks of a run become no row.
            tasks = max(CURVE) * 11 // 10
            made.append(bench.training_set(kind, {"query.composed": composed}, tasks))
            for rows in CURVE:
                name = f"{kind}-{rows}"
                made.append(bench.selected(f"rows-{name}", kind, f"rows = {rows}\n"))
                made += sft(bench, name, f"rows-{name}", "selected")
        return [*made, bench.evaluate("curves", models(bench, self.names()))]

    def text(self, bench):
        groups = {name: by_seed(bench, name) for name in self.names()}
        found = measured(bench, "curves", ["curves"], groups)
        rows = []
        for name in self.names():
            kind, asked = name.rsplit("-", 1)
            taken = json.loads((bench.work / f"rows-{name}.json").read_text())["taken"]
            rates = [tables.rate(found, name, suite) for suite in tables.suites(found)]
            rows.append([kind, asked, taken, *rates])
        splits = [tables.split_name(suite) for suite in tables.suites(found)]
        return tables.table(["training rows", "asked for", "there are", *splits], rows)


class Ablations:
    """One part of the training data changed at a time, at equal tokens; corrections are left out of the loop."""

    def variants(self, bench):
        return {
            "no-messy": {"query.messy": 0.0},
            "no-recovery": {"teacher": '{ kind = "expert", recoveries = 0.0, idioms = ["pandas"] }'},
            "all-idioms": {"teacher": '{ kind = "expert", recoveries = 0.15 }'},
            "one-wording": lambda: {"shard": one_wording(bench)},
        }

    def steps(self, bench):
        made = [bench.base(), bench.training_set(FULL), *sft(bench, FULL, FULL)]
        for name, changes in self.variants(bench).items():
            made += [bench.training_set(name, changes), *sft(bench, name, name)]
        made += loops(bench, "loop", CORRECTIONS)
        made += [step for step in loops(bench, "no-corrections", "[]") if not step.name.startswith("half-")]
        agents = models(bench, [FULL, *self.variants(bench)], ["loop", "no-corrections"])
        return [*made, bench.evaluate("ablations", agents)]

    def text(self, bench):
        names = [FULL, *self.variants(bench), "loop", "no-corrections"]
        found = measured(bench, "ablations", ["ablations"], {name: by_seed(bench, name) for name in names})
        pairs = [(name, FULL) for name in self.variants(bench)] + [("no-corrections", "loop")]
        return tables.rates(found, names) + "\n" + tables.gains(found, pairs)


def one_wording(bench):
    """`[shard]` of a run whose rows say everything in the first wording: it holds out all others that the full set has."""
    others = set()
    for task in tasks_of(bench, FULL):
        others |= {name for name in task["origin"].get("wordings", []) if not name.endswith("/0")}
    return f"{{ {steps.ALL_TRAINED}, held_out_names = {json.dumps(sorted(others))} }}"


class Styles:
    """Short solutions against varied ones, at equal tokens: more rows fit into them if rows are short."""

    names = ("brief", FULL)

    def steps(self, bench):
        brief = {"teacher": '{ kind = "expert", recoveries = 0.15, idioms = ["pandas"], style = "brief" }'}
        made = [bench.base(), bench.training_set("brief", brief), *sft(bench, "brief", "brief")]
        made += [bench.training_set(FULL), *sft(bench, FULL, FULL)]
        return [*made, bench.evaluate("styles", models(bench, self.names))]

    def text(self, bench):
        groups = {name: by_seed(bench, name) for name in self.names}
        found = measured(bench, "styles", ["styles"], groups)
        return tables.rates(found, groups) + "\n" + tables.gains(found, [self.names])


class Worth:
    """What 1,000 tokens of a category are worth: categories left out one at a time, at equal tokens.

    This is no regression: there are as many sets as categories, and each says what is lost without one of them.
    """

    def steps(self, bench):
        made = [bench.base(), bench.training_set(FULL), *sft(bench, FULL, FULL)]
        for category in CATEGORIES:
            others = json.dumps([other for other in CATEGORIES if other != category])
            name = f"without-{category}"
            made += [bench.training_set(name, {"query.categories": others}), *sft(bench, name, name)]
            made.append(bench.selected(f"only-{category}", FULL, f'categories = ["{category}"]\n'))
        agents = models(bench, [FULL, *(f"without-{category}" for category in CATEGORIES)])
        return [*made, bench.evaluate("worth", agents)]

    def text(self, bench):
        names = [FULL, *(f"without-{category}" for category in CATEGORIES)]
        found = measured(bench, "worth", ["worth"], {name: by_seed(bench, name) for name in names})
        sizes = {category: tokens_of(bench, f"only-{category}") for category in CATEGORIES}
        whole = sum(sizes.values())
        parts = {category: (f"without-{category}", size / whole) for category, size in sizes.items()}
        return self.__doc__.strip().splitlines()[0] + "\n\n" + tables.worth(found, FULL, parts, bench.tokens)


def tokens_of(bench, rows):
    """Tokens of a data set, as `pybench stats` counts them."""
    survey = json.loads(steps.output(bench.program("pybench", "stats", bench.work / rows, "--json"), bench.root))
    return survey["instructions"] * survey["tokens_each"]


class Beyond:
    """Tasks of others, and general ability, before and after."""

    suites = ("da-dev", "pybench")

    def steps(self, bench):
        agents = {"before": STUDENT, **models(bench, ["sft"], ["loop"])}
        return [
            bench.base(),
            *sft(bench, "sft", BASE),
            *loops(bench, "loop", CORRECTIONS),
            bench.evaluate("beyond", agents, self.suites),
            bench.evaluate("general", agents, GENERAL, single_reply=True),
        ]

    def text(self, bench):
        groups = {"before": ["before"]} | {name: by_seed(bench, name) for name in ("sft", "loop")}
        pairs = [("sft", "before"), ("loop", "before")]
        made = []
        for name in ("beyond", "general"):
            found = measured(bench, name, [name], groups)
            made.append(tables.rates(found, groups, "benchmark") + "\n" + tables.gains(found, pairs))
        return "\n".join(made)


class Operations:
    """Pass rate by operation of the held-out tasks, with the number of training rows that have the operation."""

    def steps(self, bench):
        return Cells().steps(bench)

    def text(self, bench):
        groups = {"sft": by_seed(bench, "sft")}
        header, attempts = tables.pooled([bench.records("cells")], groups)
        operations = {task["id"]: names_of(task) for task in tasks_of(bench, BASE)}
        rows = {}
        for row in trained_tasks(bench):
            for name in set(operations.get(row, [])):
                rows[name] = rows.get(name, 0) + 1
        shortened = {task[:SHORT]: names for task, names in operations.items()}
        out = bench.work / "tables" / "operations"
        out.mkdir(parents=True, exist_ok=True)
        found = reported(bench, out, header, tables.by_operation(attempts, shortened))
        return tables.operations(found, "sft", rows)


def tasks_of(bench, run):
    with (bench.work / run / "tasks.jsonl").open() as lines:
        return [json.loads(line) for line in lines]


def names_of(task):
    """The operations of a task; none of one that comes from a template."""
    skeleton = task["origin"].get("skeleton")
    return skeleton.split(">") if skeleton else []


def trained_tasks(bench):
    """The task of each training row of the base."""
    out = bench.work / "tables" / "trained.jsonl"
    out.parent.mkdir(parents=True, exist_ok=True)
    export = ("dataset", "export", bench.work / BASE, "--to", "jupyter-agent", "--split", "train", "--out", out)
    steps.output(bench.program("pybench", *export), bench.root)
    with out.open() as lines:
        return [json.loads(line)["task_id"] for line in lines]


# --- the command -----------------------------------------------------------------------------------

TABLES = {
    "cells": Cells,
    "curves": Curves,
    "ablations": Ablations,
    "styles": Styles,
    "worth": Worth,
    "beyond": Beyond,
    "operations": Operations,
}


def machine():
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        names = [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0] if names else model
    return f"{os.cpu_count()} cores ({model})"


def page(name, text, bench, command):
    """The table as a page of its own, with what a reader needs to make it again."""
    return (
        f"# `just bench teach {name}`\n\n"
        f"{TABLES[name].__doc__.strip().splitlines()[0]}\n\n"
        f"```sh\n{command}\n```\n\n"
        f"{STUDENT}; {len(bench.seeds)} seeds of training, {bench.tokens:,} tokens each; {bench.tasks:,} tasks, of each kind of "
        f"held-out task at most {bench.max_tasks}; {ROUNDS} rounds of a loop; {machine()}, {datetime.date.today()}. "
        "Pass rates have Wilson intervals of 95 % over tasks, with the mean over seeds as the rate of a task; gains are paired, "
        "with bootstrap intervals over groups of tasks that share a file.\n\n" + text
    )


def options(arguments):
    parser = argparse.ArgumentParser(prog="just bench teach", description=__doc__.splitlines()[0])
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--seeds", type=int, default=3, help="training runs of each kind [%(default)s]")
    parser.add_argument("--tokens", type=int, default=1_000_000, help="tokens of each training run [%(default)s]")
    parser.add_argument("--tasks", type=int, default=3200, help="tasks of each data set [%(default)s]")
    parser.add_argument(
        "--max-tasks", type=int, default=120, help="evaluated tasks of each kind of held-out task [%(default)s]"
    )
    parser.add_argument("--work", default="data/runs/teach", help="folder of the runs [%(default)s]")
    parser.add_argument("--dry-run", action="store_true", help="print what is left to do, with hours")
    parser.add_argument("--out", help="write the table to this file, too, for example in docs/benchmarks")
    chosen = parser.parse_args(arguments)
    if min(chosen.seeds, chosen.tokens, chosen.tasks, chosen.max_tasks) < 1:
        parser.error("--seeds, --tokens, --tasks and --max-tasks must be at least 1")
    return chosen


def main(root, programs, *arguments):
    chosen = options(arguments)
    work = Path(root) / chosen.work
    bench = Bench(root, programs, work, chosen.seeds, chosen.tokens, chosen.tasks, chosen.max_tasks)
    table = TABLES[chosen.table]()
    planned = table.steps(bench)
    if chosen.dry_run:
        print(steps.plan(planned, steps.speeds(work)))
        return 0
    steps.keep_sizes(bench)
    code = steps.run(planned, root)
    if code:
        return code
    text = table.text(bench)
    print(text)
    if chosen.out:
        Path(chosen.out).write_text(page(chosen.table, text, bench, shlex.join(["just", "bench", "teach", *arguments])))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
