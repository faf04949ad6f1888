"""Tests the tables of `just bench teach` on planted records, with the statistics of the real program.

    python teach_tables_test.py PYBENCH
"""

import sys
import tempfile
from pathlib import Path

import teach_tables as tables

HEADER = {
    "task_set": "planted",
    "tasks": "0" * 64,
    "checker": "c",
    "environment": "e",
    "prompts": "p",
    "limits": {"max_turns": 8},
}
SIZES = {"library": 60, "library: unseen pairs": 20}


def header(*labels):
    agent = {"kind": "model", "about": "planted"}
    return {**HEADER, "agents": {label: agent for label in labels}}


def attempts(label, passes):
    for suite, count in SIZES.items():
        for number in range(count):
            yield {
                "agent": label,
                "suite": suite,
                "task": f"{len(suite):06x}{number:06x}",
                "category": "chart",
                "seed": 0,
                "outcome": {"outcome": "ran"},
                "scores": {"strict": passes(number)},
                "turns": 1,
                "max_turns": 8,
            }


def planted(folder):
    """The evaluation of three models, and the one of a bare model."""
    models = {
        "scaffold": lambda number: False,
        "sft-1": lambda number: number % 2 == 0,
        "sft-2": lambda number: number % 4 == 0,
    }
    records = [attempt for label, passes in models.items() for attempt in attempts(label, passes)]
    tables.write(folder / "cells.jsonl", header(*models), records)
    tables.write(folder / "bare.jsonl", header("bare"), attempts("bare", lambda number: False))
    return [folder / "cells.jsonl", folder / "bare.jsonl"]


GROUPS = {"bare": ["bare"], "scaffold": ["scaffold"], "sft": ["sft-1", "sft-2"]}


def report(program, folder, name, head, records):
    path = folder / f"{name}.jsonl"
    tables.write(path, head, records)
    return tables.report(program, path, folder / name)


def seeds_are_one_agent(program, folder, paths):
    found = report(program, folder, "pooled", *tables.pooled(paths, GROUPS))
    assert tables.suites(found) == list(SIZES), tables.suites(found)
    assert tables.rate(found, "scaffold", "library") == "0 % [0, 6], n = 60"
    sft = tables.rate(found, "sft", "library")
    assert sft.startswith("37.5 % [") and sft.endswith(", n = 60"), sft
    gained = tables.gain(found, "sft", "scaffold", "library")
    assert abs(gained[0] - 0.375) < 1e-9 and 0 < gained[1] < 0.375 < gained[2], gained
    lost = tables.gain(found, "scaffold", "sft", "library")
    assert lost == (-gained[0], -gained[2], -gained[1]), lost
    assert tables.gain(found, "sft", "nobody", "library") is None
    cells = tables.rates(found, GROUPS).splitlines()
    assert cells[0] == "| tasks | bare | scaffold | sft |" and cells[2].startswith("| unseen files | 0 % "), cells
    assert cells[3].startswith("| unseen pairs | "), cells
    gains = tables.gains(found, [("sft", "bare")])
    assert "sft − bare" in gains and "37.5 [" in gains, gains
    worth = tables.worth(found, "sft", {"chart": ("scaffold", 0.5)}, 100_000)
    assert "| chart | unseen files | 50 | 37.5 [" in worth and "| 0.7500 |" in worth, worth


def operations_are_counted(program, folder, paths):
    head, records = tables.pooled(paths[:1], {"sft": GROUPS["sft"]})
    names = {record["task"]: ["a", "b"] if int(record["task"], 16) % 2 == 0 else ["a", "a"] for record in records}
    found = report(program, folder, "operations", head, tables.by_operation(records, names))
    lines = tables.operations(found, "sft", {"b": 7}).splitlines()[2:]
    assert len(lines) == 2, lines
    assert lines[0].startswith("| `a` | 0 | 80 | 37.5 % ["), lines
    assert lines[1].startswith("| `b` | 7 | 40 | 75 % ["), lines


def other_tasks_are_refused(_, folder, paths):
    other = folder / "other.jsonl"
    tables.write(other, {**header("bare"), "environment": "x"}, attempts("bare", lambda number: False))
    for wrong, text in (([paths[0], other], "environment"), (paths[:1], "bare")):
        try:
            tables.pooled(wrong, GROUPS)
        except SystemExit as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"{text} was not noticed")


def main(program):
    for test in (seeds_are_one_agent, operations_are_counted, other_tasks_are_refused):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            test(program, folder, planted(folder))


if __name__ == "__main__":
    main(sys.argv[1])
