"""Compares turns of agents per hour between servers on a CPU: the same model, tasks, interpreter and threads.

    python training/benches/agents.py PYBENCH PYBENCH_TRAIN LIBRARY [--model NAME] [--tasks N] [--only NAME …]

The model plays held-out tasks of LIBRARY, a run folder of `pybench synthesize`, in `pybench eval`; only its server differs,
and each has eight slots. A turn is a reply and what the interpreter makes of it. The time is that of the whole evaluation,
with its start and its checks. Servers are those of `serve.py` that speak HTTP.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import serve

RECIPE = """name = "agents"
library = "{library}"
suites = []
max_tasks = {tasks}
[rollout]
format = "pybench_short"
max_turns = 4
max_identical_turns = 2
sampling = {{ max_tokens = 192, temperature = 0.0 }}
[agents.m]
kind = "openai"
model = "m"
base_url = "{url}"
price = {{ prompt = 0, completion = 0 }}
"""


def evaluate(pybench, recipe, runs):
    """Attempts, turns, generated tokens, attempts that passed, and seconds."""
    path = Path(runs, "agents.toml")
    path.write_text(recipe)
    began = time.perf_counter()
    done = subprocess.run([pybench, "eval", path, "--runs-dir", runs], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seconds = time.perf_counter() - began
    lines = Path(runs, "agents", "results.jsonl").read_text().splitlines()
    attempts = [json.loads(line) for line in lines[1:]]
    if done.returncode:
        print(f"pybench eval exited with {done.returncode}: {done.stderr.strip().splitlines()[-1]}")
    total = lambda key: sum(attempt[key] for attempt in attempts)
    return len(attempts), total("turns"), total("tokens_out"), sum(bool(one["scores"]["strict"]) for one in attempts), seconds


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("pybench")
    parse.add_argument("binary")
    parse.add_argument("library")
    parse.add_argument("--model", default="smollm2-135m-instruct", help="a name of the catalog, or a directory")
    parse.add_argument("--tasks", type=int, default=100)
    parse.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parse.add_argument("--only", nargs="*", help=f"of {', '.join(serve.SERVERS)}")
    asked = parse.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(asked.threads)
    asked.folder = serve.folder(asked)
    library = Path(asked.library).resolve()
    print(f"agents: {asked.model} · {asked.tasks} held-out tasks · {asked.threads} threads · load {os.getloadavg()[0]:.1f}\n")
    print("| | attempts | passed | turns | generated tokens | seconds | turns per hour |\n| --- |" + " ---: |" * 6, flush=True)
    for name, start in serve.SERVERS.items():
        if name.startswith("transformers") or asked.only and not any(name.startswith(one) for one in asked.only):
            continue
        with tempfile.TemporaryDirectory() as asked.scratch:
            try:
                server = start(asked)
            except serve.Skipped as reason:
                print(f"| {name} | skipped: {reason} | | | | | |", flush=True)
                continue
            try:
                server.reply(0, 8)
                recipe = RECIPE.format(library=library, tasks=asked.tasks, url=server.url)
                attempts, turns, tokens, passed, seconds = evaluate(asked.pybench, recipe, asked.scratch)
            finally:
                server.close()
        print(f"| {name} | {attempts} | {passed} | {turns} | {tokens:,} | {seconds:.0f} | {3600 * turns / seconds:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
