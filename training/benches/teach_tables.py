"""The tables of `just bench teach`, from records of `pybench eval`.

All statistics are those of `pybench eval report`. What it does not know, such as agents that differ in the seed of their
training only, is written into the labels of records before it reads them.
"""

import json
import subprocess

# Suites that are measured by our executed checks; the others by the score of their authors.
STRICT = ("library", "operations", "pybench")


def read(path):
    """The header and the attempts of a file of records."""
    with open(path) as lines:
        header = json.loads(next(lines))
        return header, [json.loads(line) for line in lines]


def write(path, header, attempts):
    with open(path, "w") as out:
        for record in [header, *attempts]:
            out.write(json.dumps(record) + "\n")


def pooled(paths, groups):
    """The records of several files with one agent for each group of agents, which differ in their seed only.

    `groups` has the labels of the agents by the label of their group; others are left out.
    """
    group_of = {label: (group, at) for group, labels in groups.items() for at, label in enumerate(labels)}
    merged, attempts = None, []
    for path in paths:
        header, records = read(path)
        agents = {group_of[label][0]: agent for label, agent in header["agents"].items() if label in group_of}
        if merged is None:
            merged = {**header, "agents": {}}
        same = ("tasks", "checker", "environment", "limits")
        for part in same:
            if merged[part] != header[part]:
                raise SystemExit(f"teach: {path}: its {part} differ from those of {paths[0]}; evaluate both again")
        merged["agents"].update(agents)
        for record in records:
            if record["agent"] in group_of:
                group, seed = group_of[record["agent"]]
                # The report shows what an agent did; the tables do not.
                bare = {"inputs": [], "outputs": [], "trajectory": None, "checks": []}
                attempts.append({**record, **bare, "agent": group, "seed": seed})
    missing = set(groups) - set(merged["agents"])
    if missing:
        raise SystemExit(f"teach: no attempt of {', '.join(sorted(missing))} in {', '.join(map(str, paths))}")
    return merged, attempts


def by_operation(attempts, operations):
    """Each attempt once for each operation of its task, which becomes its category.

    `operations` has the operations of tasks by the short id of the task.
    """
    for attempt in attempts:
        for operation in sorted(set(operations.get(attempt["task"], []))):
            task = f"{attempt['suite']}-{attempt['task']}-{operation}"
            yield {**attempt, "suite": "operations", "task": task, "category": operation}


def report(program, records, out):
    """What `pybench eval report` says of a file of records."""
    subprocess.run([program, "eval", "report", records, "--out", out], check=True, stdout=subprocess.DEVNULL)
    return json.loads((out / "report.json").read_text())


# --- figures ---------------------------------------------------------------------------------------


def points(share):
    text = f"{100 * share:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text


def of_interval(interval):
    return f"[{points(interval['low'])}, {points(interval['high'])}]"


def score(suite):
    return "strict" if suite.split(":")[0] in STRICT else "upstream"


def measure(found, agent, suite):
    """The summary of an agent on a suite, or None."""
    for summary in found["agents"]:
        if (summary["agent"], summary["suite"]) == (agent, suite):
            measures = {one["measure"]: one for one in summary["measures"]}
            return measures.get(score(suite)) or measures.get("strict")
    return None


def rate(found, agent, suite):
    """Pass rate with its Wilson interval and the number of tasks."""
    value = measure(found, agent, suite)
    if value is None:
        return "–"
    overall = value["overall"]
    return f"{points(overall['rate'])} % {of_interval(overall['interval'])}, n = {overall['tasks']}"


def gain(found, after, before, suite):
    """Points by which one agent passes more tasks than another: (difference, low, high), or None."""
    for one in found["comparisons"]:
        if one["suite"] != suite or one["measure"] != score(suite):
            continue
        low, high = one["interval"]["low"], one["interval"]["high"]
        if (one["a"], one["b"]) == (after, before):
            return one["difference"], low, high
        if (one["a"], one["b"]) == (before, after):
            return -one["difference"], -high, -low
    return None


def shown_gain(found, after, before, suite):
    value = gain(found, after, before, suite)
    if value is None:
        return "–"
    return f"{points(value[0])} {of_interval(dict(low=value[1], high=value[2]))}"


def suites(found):
    return sorted({summary["suite"] for summary in found["agents"]})


def split_name(suite):
    """What training rows lack of the tasks of a suite."""
    return suite.removeprefix("library: ") if ":" in suite else suite.replace("library", "unseen files")


# --- tables ----------------------------------------------------------------------------------------


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def rates(found, agents, first="tasks"):
    """A row for each suite, a column for each agent."""
    rows = [[split_name(suite), *(rate(found, agent, suite) for agent in agents)] for suite in suites(found)]
    return table([first, *agents], rows)


def gains(found, pairs):
    """A row for each suite, a column for each pair of agents: points, with the interval over clusters of tasks."""
    head = ["gain in points", *(f"{after} − {before}" for after, before in pairs)]
    rows = []
    for suite in suites(found):
        rows.append([split_name(suite), *(shown_gain(found, *pair, suite) for pair in pairs)])
    return table(head, rows)


def worth(found, whole, parts, tokens):
    """What 1,000 tokens of each part of the training set are worth: the loss without the part, by its tokens.

    `parts` has the agent that was trained without the part, and the share of the part in the training tokens.
    """
    rows = []
    for part, (agent, share) in parts.items():
        thousands = tokens * share / 1000
        for suite in suites(found):
            lost = gain(found, whole, agent, suite)
            if lost is None or not thousands:
                continue
            each = f"{100 * lost[0] / thousands:.4f}"
            rows.append([part, split_name(suite), points(share), shown_gain(found, whole, agent, suite), each])
    head = ["part", "tasks", "% of the tokens", "points lost without it", "points per 1,000 of its tokens"]
    return table(head, rows)


def operations(found, agent, rows_of):
    """Pass rate of the held-out tasks with an operation, and the number of training rows that have it."""
    value = measure(found, agent, "operations")
    found_rates = (value or {"categories": {}})["categories"]
    order = sorted(found_rates.items(), key=lambda item: (item[1]["rate"], item[0]))
    rows = [
        [f"`{name}`", rows_of.get(name, 0), one["tasks"], f"{points(one['rate'])} % {of_interval(one['interval'])}"]
        for name, one in order
    ]
    return table(["operation", "training rows", "held-out tasks", "pass"], rows)
