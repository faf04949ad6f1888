"""Proves the strict score of PyBench: for every task the reference solution passes, agents that do
nothing of the task fail, and wrong solutions are told from right ones.

    ENVIRONMENT/bin/python audit.py --pybench DIR [--tasks 2-51,60] [--quick] [--json FILE] [--markdown FILE] [--jobs N] [-v]

DIR is a checkout of the upstream repository (or its data folder with meta/task.json). Only the pinned
environment is needed. Solutions run in an IPython shell with the hooks of our sessions; checks run as
the checker runs them. This harness trusts its own solutions: it is no sandbox.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

import session
import tasks
from children import call, pool

CHECK_SECONDS = 3600
LEAST_KILLED = 0.9


def main():
    options = arguments()
    found = tasks.load(options.tasks)
    bench = tasks.Bench(options.pybench)
    session.warm()
    rows = pool([lambda task=task: audit(task, bench, options.seed, options.quick) for task in found], options.jobs, lambda row: show(row, options.verbose))
    rows = [row if isinstance(row, dict) else {"index": t["index"], "status": t["status"], "error": row} for t, row in zip(found, rows)]
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    if options.markdown:
        Path(options.markdown).write_text(table(rows))
    summary(rows)
    sys.exit(0 if all(holds(row) for row in rows) else 1)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pybench", required=True, type=Path)
    parser.add_argument("--tasks", type=tasks.ranges, default=None)
    parser.add_argument("--json", help="write the rows as JSON")
    parser.add_argument("--markdown", help="write the rows as a table")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--quick", action="store_true", help="right solutions only: no null agents, no mutants")
    parser.add_argument("-v", "--verbose", action="store_true")
    return parser.parse_args()


def audit(task, bench, seed, quick):
    """One row of the table."""
    row = {"index": task["index"], "status": task["status"]}
    if task["status"] != "headline":
        return {**row, "reason": task["reason"]}
    started = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="pybench-audit-") as folder:
            row.update(_audit(task, bench, Path(folder), seed, quick))
    except Exception as error:
        row["error"] = f"{type(error).__name__}: {error}"[:1500] if isinstance(error, tasks.Wrong) else traceback.format_exc()[-1500:]
    return {**row, "seconds": round(time.monotonic() - started, 1)}


def _audit(task, bench, folder, seed, quick):
    if common := shared(task):
        raise tasks.Wrong(f"reference and solution share {common[0]!r}")
    stage = bench.stage(task, folder / "given", seed)
    right = session.solve(task["solution"]["turn"], task["solution"]["answer"], stage, folder / "right")
    changed = [] if quick else [("own: " + m["name"], True, *mutant_turns(task, m)) for m in task.get("mutant", [])]
    changed += [("right: " + m["name"], False, *mutant_turns(task, m)) for m in task.get("right", [])]
    others = [(name, session.solve(turns, answer, stage, folder / f"other{i}", lenient)) for i, (name, lenient, turns, answer) in enumerate(changed)]
    query = bench.query(task["index"])
    rows = call(lambda: checked(task, query, stage, right, others, quick), CHECK_SECONDS, "the checks")
    return verdict(rows, task.get("equivalent", []))


def shared(task):
    """Longer lines that stand in the reference and in the solution: two equal mistakes would agree."""
    lines = lambda code: {line.strip() for line in code.splitlines() if len(line.strip()) > 25 and not line.strip().startswith(("import ", "from "))}  # noqa: E731
    return sorted(lines(task["reference"]) & set().union(*(lines(turn["cell"]) for turn in task["solution"]["turn"])))


def mutant_turns(task, mutant):
    """The solution with one thing changed."""
    turns, answer = [dict(turn) for turn in task["solution"]["turn"]], mutant.get("answer", task["solution"]["answer"])
    if "find" in mutant:
        turn = turns[mutant.get("turn", 0)]
        if turn["cell"].count(mutant["find"]) != 1:
            raise tasks.Wrong(f"mutant `{mutant['name']}`: `{mutant['find']}` stands {turn['cell'].count(mutant['find'])} times in the cell")
        turn["cell"] = turn["cell"].replace(mutant["find"], mutant["replace"])
    if "cell" in mutant:
        turns.append({"cell": mutant["cell"]})
    return turns, answer


def checked(task, query, stage, right, others, quick):
    """[(name, findings)] of the solution, the null agents, all mutants and other right solutions; runs in a child."""
    import checker
    import evaluate
    from mutate import audit as mutants

    os.chdir(stage)
    spec = {"checks": task["check"], "reference": task["reference"], "query": query, "outputs": task["outputs"]}
    names = evaluate.run_reference(task["reference"])
    load = lambda left: foreign(spec, names, checker.load(str(left)))  # noqa: E731
    candidate = load(right)
    if quick:
        return [["original", evaluate.findings(spec, names, candidate)], *([name, evaluate.findings(spec, names, load(left))] for name, left in others)]
    rows = mutants.evaluate(spec, names, candidate)["mutants"]
    for mutant in mutants.mutants(spec, names, candidate):
        if mutants.needs_another_sandbox(spec, mutant):
            with tempfile.TemporaryDirectory() as folder:
                other = foreign(spec, names, mutants.overlay(mutant, candidate, folder))
                rows.append([mutant.name, evaluate.findings(spec, names, other)])
    rows += [[name, evaluate.findings(spec, names, load(left))] for name, left in others]
    return rows


def foreign(spec, names, candidate):
    """Models and programs run in a child of their own, as the other sandbox does."""
    import foreign_inputs

    wanted = foreign_inputs.collect(spec, names)
    if wanted["models"]:
        candidate.predictions = call(lambda: session.predict(wanted["models"], candidate.root), 300, "a model")
    if wanted["programs"]:
        candidate.runs = call(lambda: session.programs(wanted["programs"], candidate.root), 300, "a program")
    return candidate


def verdict(rows, equivalent):
    """What the findings say, in numbers. Equivalent mutants (whose name ends so) are right answers too."""
    passes = lambda findings: all(f["outcome"] == "pass" for f in findings)  # noqa: E731
    original = rows[0][1]
    nulls = [(name, passes(f)) for name, f in rows[1:] if name.startswith("null")]
    rights = [(name, f) for name, f in rows[1:] if name.startswith("right: ")]
    mutants = [(name, passes(f)) for name, f in rows[1:] if not name.startswith(("null", "right: ")) and not name.endswith(tuple(equivalent))]
    return {
        "reference": passes(original),
        "failing": [f"{f['subject']}: {f['outcome']}: {f['detail']}" for f in original if f["outcome"] != "pass"],
        "rights": len(rights), "rights_failing": [f"{name}: {g['outcome']}: {g['detail']}" for name, f in rights for g in f if g["outcome"] != "pass"],
        "nulls": len(nulls), "nulls_passing": [name for name, passed in nulls if passed],
        "mutants": len(mutants), "killed": sum(not passed for _, passed in mutants),
        "equivalent": equivalent, "survivors": [name for name, passed in mutants if passed],
    }  # fmt: skip


def holds(row):
    """Whether the task may be in the headline."""
    if row["status"] != "headline":
        return True
    return "error" not in row and row["reference"] and not row["rights_failing"] and not row["nulls_passing"] and (row["mutants"] >= 5 or not row["nulls"]) and row["killed"] >= LEAST_KILLED * row["mutants"]


def show(row, verbose):
    if not isinstance(row, dict):
        return print("ERROR", row, flush=True)
    if row["status"] != "headline":
        return print(f"{row['index']:>4}  {row['status']}: {row['reason']}", flush=True)
    if "error" in row:
        return print(f"{row['index']:>4}  ERROR {row['error']}", flush=True)
    mark = "ok " if holds(row) else "BAD"
    print(f"{row['index']:>4}  {mark} reference {'pass' if row['reference'] else 'FAIL'}  nulls {len(row['nulls_passing'])}/{row['nulls']}  killed {row['killed']}/{row['mutants']}  {row['seconds']} s", flush=True)
    if verbose or mark == "BAD":
        for line in [*row["failing"], *row["rights_failing"], *row["nulls_passing"], *(f"survived: {s}" for s in row["survivors"])]:
            print("       ", line[:400], flush=True)


def table(rows):
    """The rows as a Markdown table."""
    lines = ["| task | status | reference | null agents that pass | mutants killed | equivalent | survivors or reason |", "| --: | -- | -- | --: | --: | --: | -- |"]
    for row in rows:
        if row["status"] != "headline" or "error" in row:
            lines.append(f"| {row['index']} | {row['status']} | | | | | {row.get('reason') or row['error'].splitlines()[-1]} |")
            continue
        cells = (f"{len(row['nulls_passing'])} of {row['nulls']}", f"{row['killed']} of {row['mutants']}", len(row["equivalent"]), "; ".join(row["survivors"]))
        lines.append(f"| {row['index']} | headline | {'passes' if row['reference'] else 'FAILS'} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def summary(rows):
    headline = [row for row in rows if row["status"] == "headline"]
    done = [row for row in headline if "error" not in row]
    killed, mutants = sum(r["killed"] for r in done), sum(r["mutants"] for r in done)
    print(
        f"{len(rows)} tasks, {len(headline)} headline; reference passes {sum(r['reference'] for r in done)}; "
        f"other right solutions pass {sum(r['rights'] for r in done) - sum(bool(r['rights_failing']) for r in done)} of {sum(r['rights'] for r in done)} (tasks count once); "
        f"null agents pass {sum(len(r['nulls_passing']) for r in done)} of {sum(r['nulls'] for r in done)}; "
        f"mutants killed {killed}/{mutants}; hold {sum(holds(r) for r in headline)}"
    )


if __name__ == "__main__":
    main()
