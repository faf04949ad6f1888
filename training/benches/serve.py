"""Compares tokens per second of servers on a CPU: the same model, requests and threads.

    python training/benches/serve.py PYBENCH_TRAIN [--model NAME] [--only NAME …] …

Three measurements of each server: replies one at a time, eight at a time (greedy, `--tokens` each), and prompts of
about 1,300 tokens one at a time, of which only the first token is generated. No two prompts begin alike. Replies and
prompts are counted by the server that gives them. The first request is a warmup.

Compared are vLLM (`PYBENCH_VLLM` or the PATH), llama.cpp's server (xllamacpp) and transformers (without a server; it has
no batching of requests, so eight prompts are one call). One that is missing is named and skipped.
"""
import argparse
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

AT_ONCE = 8
START_SECONDS = 600
WORDS = (
    "table column mean price region sales count draw chart file model value year month city order total sum unit plot "
    "group filter sort median table rate share growth index label axis line bar color width name type date row"
).split()


def words(seed, count):
    chosen = random.Random(seed)
    return " ".join(chosen.choice(WORDS) for _ in range(count))


def chat(seed):
    return [{"role": "user", "content": f"Write a very long story about these words: {words(seed, 24)}"}]


class Skipped(Exception):
    """Why a server is not compared."""


class Http:
    """A server with OpenAI's API."""

    def __init__(self, url, name, process=None):
        self.url, self.name, self.process = url, name, process

    def ask(self, path, body):
        body = json.dumps({"model": self.name, "temperature": 0.0, **body}).encode()
        request = urllib.request.Request(f"{self.url}/{path}", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=START_SECONDS) as answer:
            return json.load(answer)["usage"]

    def reply(self, seed, tokens):
        return self.ask("chat/completions", {"messages": chat(seed), "max_tokens": tokens})["completion_tokens"]

    def replies(self, seeds, tokens):
        with ThreadPoolExecutor(len(seeds)) as pool:
            return sum(pool.map(lambda seed: self.reply(seed, tokens), seeds))

    def prompt(self, seed, size):
        return self.ask("completions", {"prompt": words(seed, size), "max_tokens": 1})["prompt_tokens"]

    def close(self):
        if self.process:
            self.process.terminate()
            self.process.wait()


def folder(asked):
    """The directory of a model, which is downloaded if it is a name of the catalog."""
    if Path(asked.model).is_dir():
        return asked.model
    found = subprocess.run([asked.binary, "model", asked.model], check=True, stdout=subprocess.PIPE, text=True)
    return found.stdout.strip()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ours(asked, dtype):
    command = [asked.binary, "serve", asked.model, "--port", "0", "--name", "m", "--device", "cpu"]
    command += ["--slots", str(AT_ONCE), "--dtype", dtype]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    url = process.stdout.readline().strip()
    if not url:
        sys.exit(f"{' '.join(command)} did not start")
    return Http(url, "m", process)


def vllm(asked, dtype, sequences=AT_ONCE):
    program = os.environ.get("PYBENCH_VLLM") or shutil.which("vllm")
    if not program:
        raise Skipped("not on the PATH, and PYBENCH_VLLM is not set")
    port = free_port()
    command = [program, "serve", asked.folder, "--port", str(port), "--served-model-name", "m"]
    command += ["--dtype", dtype, "--max-model-len", "4096", "--max-num-seqs", str(sequences)]
    log = tempfile.TemporaryFile()
    process = subprocess.Popen(command, stdout=log, stderr=log)
    server = Http(f"http://127.0.0.1:{port}/v1", "m", process)
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
            return server
        except OSError:
            time.sleep(1)
    server.close()
    raise Skipped("it did not start")


def llamacpp(asked, kind):
    try:
        import xllamacpp
    except ImportError:
        raise Skipped("xllamacpp is not installed") from None
    path = Path(asked.scratch, f"{kind}.gguf")
    subprocess.run([asked.binary, "export", asked.model, "--gguf", path, "--type", kind], check=True, stdout=subprocess.DEVNULL)
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx, params.n_parallel = 4096 * AT_ONCE, AT_ONCE
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = asked.threads
    params.port = free_port()
    server = xllamacpp.Server(params)
    http = Http(f"http://127.0.0.1:{params.port}/v1", "m")
    http.kept = server
    return http


class Transformers:
    """Replies of transformers' `generate` in this process."""

    def __init__(self, asked, dtype):
        try:
            import torch
            from transformers import AutoModelForCausalLM, AutoTokenizer
        except ImportError:
            raise Skipped("transformers is not installed") from None
        torch.set_num_threads(asked.threads)
        self.tokenizer = AutoTokenizer.from_pretrained(asked.folder, padding_side="left")
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        self.model = AutoModelForCausalLM.from_pretrained(asked.folder, dtype=getattr(torch, dtype))

    def generate(self, texts, tokens):
        batch = self.tokenizer(texts, return_tensors="pt", padding=True)
        self.model.generate(**batch, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False)
        return batch["input_ids"].shape[1]

    def replies(self, seeds, tokens):
        texts = [self.tokenizer.apply_chat_template(chat(s), tokenize=False, add_generation_prompt=True) for s in seeds]
        self.generate(texts, tokens)
        return tokens * len(seeds)

    def reply(self, seed, tokens):
        return self.replies([seed], tokens)

    def prompt(self, seed, size):
        return self.generate([words(seed, size)], 1)

    def close(self):
        del self.model


SERVERS = {
    "ours, float32": lambda asked: ours(asked, "float32"),
    "ours, bf16": lambda asked: ours(asked, "bf16"),
    "ours, int8": lambda asked: ours(asked, "int8"),
    "vLLM, float32": lambda asked: vllm(asked, "float32"),
    "vLLM, bf16": lambda asked: vllm(asked, "bfloat16"),
    "llama.cpp, f16": lambda asked: llamacpp(asked, "f16"),
    "llama.cpp, q8_0": lambda asked: llamacpp(asked, "q8_0"),
    "transformers, float32": lambda asked: Transformers(asked, "float32"),
    "transformers, bf16": lambda asked: Transformers(asked, "bfloat16"),
}
COLUMNS = ["one at a time", f"{AT_ONCE} at a time", "prompts"]


def rate(work):
    start = time.perf_counter()
    return work() / (time.perf_counter() - start)


def measure(server, asked):
    """Tokens per second of each column: the best of the rounds, since other work only takes away."""
    server.reply(0, 8)
    found = []
    for turn in range(asked.rounds):
        base = 1_000 * (turn + 1)
        one = range(base, base + asked.replies)
        many = list(range(base + 100, base + 100 + AT_ONCE))
        long = range(base + 200, base + 200 + asked.replies)
        found.append([
            rate(lambda: sum(server.reply(seed, asked.tokens) for seed in one)),
            rate(lambda: server.replies(many, asked.tokens)),
            rate(lambda: sum(server.prompt(seed, asked.prompt_words) for seed in long)),
        ])
    return [max(column) for column in zip(*found, strict=True)]


def ratios(found):
    """Our best against the others': with the same numbers, and in any kind against bf16."""
    def best(whose, kinds, column):
        all_rates = [rates[column] for name, rates in found.items() if name.startswith(whose) and name.endswith(kinds)]
        return max(all_rates, default=None)

    others = ("vLLM", "llama.cpp", "transformers")
    half, small = ("bf16", "f16"), ("bf16", "int8")
    rows = [
        ("float32 ÷ the best float32", ("float32",), others, ("float32",)),
        ("bf16 ÷ the best bf16 or f16", ("bf16",), others, half),
        ("int8 ÷ llama.cpp's q8_0", ("int8",), ("llama.cpp",), ("q8_0",)),
        ("our best ÷ vLLM's bf16", ("float32", *small), ("vLLM",), ("bf16",)),
    ]
    for label, kinds, whose, theirs in rows:
        pairs = [(best("ours", kinds, c), best(whose, theirs, c)) for c in range(len(COLUMNS))]
        if all(a and b for a, b in pairs):
            yield label, [f"{a / b:.2f} ×" for a, b in pairs]


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("binary")
    parse.add_argument("--model", default="smollm2-135m-instruct")
    parse.add_argument("--tokens", type=int, default=128, help="tokens of a reply")
    parse.add_argument("--replies", type=int, default=2, help="replies one at a time, and prompts, per round")
    parse.add_argument("--prompt-words", type=int, default=1270)
    parse.add_argument("--rounds", type=int, default=3)
    parse.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parse.add_argument("--only", nargs="*", help=f"of {', '.join(SERVERS)}")
    asked = parse.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(asked.threads)
    asked.folder = folder(asked)
    print(f"serve: {asked.model} · {asked.threads} threads · best of {asked.rounds} rounds, "
          f"{asked.tokens} tokens a reply · load {os.getloadavg()[0]:.1f}\n")
    print(f"| tokens per second | {' | '.join(COLUMNS)} |\n| --- |{' ---: |' * len(COLUMNS)}", flush=True)
    rates = {}
    with tempfile.TemporaryDirectory() as asked.scratch:
        for name, start in SERVERS.items():
            if asked.only and not any(name.startswith(one) for one in asked.only):
                continue
            try:
                server = start(asked)
            except Skipped as reason:
                print(f"| {name} | skipped: {reason} | | |", flush=True)
                continue
            try:
                rates[name] = measure(server, asked)
            finally:
                server.close()
            print(f"| {name} | {' | '.join(f'{one:.1f}' for one in rates[name])} |", flush=True)
    for label, row in ratios(rates):
        print(f"| {label} | {' | '.join(row)} |")


if __name__ == "__main__":
    main()
