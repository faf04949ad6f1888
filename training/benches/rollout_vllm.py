"""Compares a rollout against vLLM with a plain load generator that sends the same requests.

    python training/benches/rollout_vllm.py PYBENCH PYBENCH_TRAIN [--tasks N] [--clients N …] [--model NAME]

The model solves tasks of the quickstart through vLLM (`PYBENCH_VLLM` or the PATH). Then each request of the rollout is
sent once more, with the length of its reply fixed, by so many clients that wait for nothing but their replies. vLLM
counts the generated tokens, and forgets its cached prompts in between. Sessions, checks of replies and the journal are
part of the rollout's time, and so is its start.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import serve

RUN = "rollout-vllm"
# Bounds for a small model, whose replies would else be as long as they may be.
BOUNDS = ("rollout.format=\"pybench_short\"", "rollout.max_turns=4", "rollout.sampling={ max_tokens = 256, temperature = 0.0 }")


def generated(server):
    """Tokens that vLLM has generated since it started."""
    with urllib.request.urlopen(server.url.removesuffix("/v1") + "/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("vllm:generation_tokens_total"))


def forget_prompts(server):
    request = urllib.request.Request(server.url.removesuffix("/v1") + "/reset_prefix_cache", b"")
    urllib.request.urlopen(request).close()


def measure(server, work):
    """Seconds, generated tokens, and tokens per second."""
    forget_prompts(server)
    before, began = generated(server), time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    tokens = generated(server) - before
    return seconds, tokens, tokens / seconds


def requests(path):
    """What the rollout asked: the messages before each reply, and the tokens of the reply."""
    for line in path.read_text().splitlines():
        trajectory = json.loads(line)
        messages, sampling = trajectory["messages"], trajectory["sampling"]
        replies = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
        for at, turn in zip(replies, trajectory["turns"], strict=True):
            tokens = turn["usage"]["completion_tokens"]
            yield {
                "messages": [{"role": one["role"], "content": one["content"]} for one in messages[:at]],
                "temperature": sampling["temperature"], "top_p": sampling["top_p"],
                "max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True,
            }


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("pybench")
    parse.add_argument("binary")
    parse.add_argument("--model", default="smollm2-135m-instruct")
    parse.add_argument("--tasks", type=int, default=60)
    parse.add_argument("--clients", type=int, nargs="+", default=[16, 32])
    parse.add_argument("--dtype", default="bfloat16")
    asked = parse.parse_args()
    asked.folder = serve.folder(asked)
    os.environ["VLLM_SERVER_DEV_MODE"] = "1"
    with tempfile.TemporaryDirectory() as runs:
        def pybench(stage, teacher):
            command = [asked.pybench, stage, "quickstart", "--runs-dir", runs, "--run", RUN]
            for key in (f"query.tasks={asked.tasks}", "grade.at_least=1", teacher, *BOUNDS):
                command += ["--set", key]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

        try:
            server = serve.vllm(asked, asked.dtype, sequences=64)
        except serve.Skipped as reason:
            sys.exit(f"vLLM: {reason}")
        try:
            teacher = f'teacher={{ kind = "openai", model = "m", base_url = "{server.url}", price = {{ prompt = 0, completion = 0 }} }}'
            for stage in ("crawl", "query"):
                pybench(stage, teacher)
            server.reply(0, 8)
            load = os.getloadavg()[0]
            rows = {"rollout": measure(server, lambda: pybench("rollout", teacher))}
            sent = list(requests(Path(runs, RUN, "trajectories.jsonl")))
            for clients in asked.clients:
                def plain():
                    with ThreadPoolExecutor(clients) as pool:
                        list(pool.map(lambda body: server.ask("chat/completions", body), sent))

                rows[f"plain, {clients} clients"] = measure(server, plain)
        finally:
            server.close()
    print(f"rollout-vllm: {asked.model} · {asked.tasks} tasks · {len(sent)} requests · {os.cpu_count()} cores · load {load:.1f}\n")
    print("| | seconds | generated tokens | tokens per second |\n| --- | ---: | ---: | ---: |")
    for name, (seconds, tokens, rate) in rows.items():
        print(f"| {name} | {seconds:.0f} | {tokens:,.0f} | {rate:.0f} |")
    best = max(rate for name, (_, _, rate) in rows.items() if name != "rollout")
    print(f"\nThe rollout has {rows['rollout'][2] / best:.0%} of the best plain load.")


if __name__ == "__main__":
    main()
