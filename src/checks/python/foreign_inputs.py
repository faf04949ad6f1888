"""What the sandbox that runs models and programs is given: inputs, never answers."""

import csv
import io
import os

from common import OursError, reference


def collect(task, names):
    """{"programs": {path: [{"args", "stdin"}]}, "calls": {path: [{"setup", "calls"}]}, "models": {path: csv text without
    the target}}."""
    programs, calls, models = {}, {}, {}
    for spec in task["checks"]:
        if spec["check"] == "program":
            runs = reference(names, spec["expected"])
            programs[spec["path"]] = [{"args": [str(a) for a in r.get("args", [])], "stdin": str(r.get("stdin", ""))} for r in runs]
        if spec["check"] == "calls":
            tests = reference(names, spec["expected"])
            calls[spec["path"]] = [{"setup": test["setup"], "calls": test["calls"]} for test in tests]
        if spec["check"] == "model":
            models[spec["path"]] = without_target(os.path.join("held_out", spec["held_out"]), spec["target"])
        if spec["check"] == "property" and spec.get("held_out"):
            models[spec["path"]] = without_target(os.path.join("held_out", spec["held_out"]), spec.get("target"))
    return {"programs": programs, "calls": calls, "models": models}


def without_target(path, target):
    """The held-out table as text, without the column to predict where there is one."""
    import inputs

    names, columns = inputs.table(path)
    if target is not None and target not in names:
        raise OursError(f"{path} has no column `{target}`")
    kept = [i for i, name in enumerate(names) if name != target]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in [names, *zip(*columns)]:
        writer.writerow(["" if row[i] is None else row[i] for i in kept])
    return out.getvalue()
