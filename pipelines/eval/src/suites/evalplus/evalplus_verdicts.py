"""What EvalPlus' own program (PyPI `evalplus`) says of programs; for tests.

Standard input: `{"files": {"humaneval": PATH, "mbpp": PATH}, "programs": [[SET, TASK, [PROGRAM, …]], …]}`. Standard
output: a list for each task, with [passes the original inputs, passes all inputs] for each program.
"""
import copy
import json
import os
import sys
import types

# What EvalPlus needs to download its files and to read others' benchmarks is not installed.
for name, members in {"wget": [], "tempdir": [], "appdirs": ["user_cache_dir"], "datasets": ["load_dataset"]}.items():
    module = types.ModuleType(name)
    for member in members:
        setattr(module, member, lambda *_: "")
    sys.modules[name] = module

asked = json.load(sys.stdin)
os.environ["HUMANEVAL_OVERRIDE_PATH"] = asked["files"].get("humaneval", "")
os.environ["MBPP_OVERRIDE_PATH"] = asked["files"].get("mbpp", "")

from evalplus.data import get_human_eval_plus, get_mbpp_plus
from evalplus.eval import PASS, untrusted_check
from evalplus.eval._special_oracle import MBPP_OUTPUT_NOT_NONE_TASKS
from evalplus.gen.util import trusted_exec

read = {"humaneval": get_human_eval_plus, "mbpp": get_mbpp_plus}
tasks = {name: read[name](err_incomplete=False) for name in asked["files"]}


def passes(name, task, inputs, expected, seconds, program):
    entry, tolerance = task["entry_point"], task["atol"]
    status, _ = untrusted_check(name, program, copy.deepcopy(inputs), entry, expected, tolerance, seconds, fast_check=True)
    return status == PASS


def verdicts(name, task, programs):
    reference = task["prompt"] + task["canonical_solution"]
    parts = []
    for part in ("base_input", "plus_input"):
        inputs, entry = list(task[part]), task["entry_point"]
        known = trusted_exec(reference, inputs, entry, True, entry in MBPP_OUTPUT_NOT_NONE_TASKS)
        parts.append((inputs, *known))
    found = []
    for program in programs:
        base, plus = (passes(name, task, *part, program) for part in parts)
        found.append([base, base and plus])
    return found


# What programs print is no verdict.
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
results = [verdicts(name, tasks[name][task], programs) for name, task, programs in asked["programs"]]
with out:
    json.dump(results, out)
