"""Measures fine-tuning of a model of Llama 3 8B's shape on a CPU, beside PEFT, transformers and llama.cpp.

    python training/benches/llama.py PYBENCH_TRAIN LLAMA_MODELS [--layers N] [--folder DIR] [--llama-cpp DIR]
        [--only ROW …] [--no-merge] [--again] [--dry-run]

The weights are random (bf16, four shards); the tokenizer is Llama 3's, from the unpacked package `llama-models` in
LLAMA_MODELS. `--llama-cpp` names the source of llama.cpp, whose converter is measured beside ours. `--dry-run` prints
what each row takes, in minutes and on disk. Each row runs in processes of its own and is kept in DIR/rows-N.json, so that
an interrupted benchmark continues; `--again` measures all rows again.

The merged model of `lora` is kept for the rows `loss`, `gguf-f16` and `gguf-q8_0`. `--no-merge` leaves out the merged
models of LoRA and QLoRA, and their disk; those rows then use the model itself. `lora` keeps the activations of three
quarters of the blocks, `qlora` those of three eighths, `lora-recomputed` none. `full` trains every parameter of all blocks,
twice, the second time killed and resumed; it runs only if `--only` names it. Memory is sampled ten times a second:
`resident` is all of a process, `anonymous` is what does not belong to a file and cannot be given back.
"""
import argparse
import hashlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "parity"))
REFERENCE = Path(__file__).resolve().with_name("llama_reference.py")
GIB = 2**30
SHAPE = json.loads((Path(__file__).resolve().parents[1] / "shapes/llama-3-8b.json").read_text())
STEPS, CONTEXT, RANK = 3, 256, 8
SHARDS = 4
CONVERSATIONS = 12
FULL_CONTEXT = 128
THREADS = {"OMP_NUM_THREADS": str(os.cpu_count())}


class Cost(NamedTuple):
    """Of a row at all 32 blocks on 2 cores, estimated; GB are of disk, without the model and its merged one."""

    minutes: int
    gb: int = 0
    merged: bool = False
    grows: bool = True


COSTS = {
    "lora": Cost(2, merged=True),
    "loss": Cost(8, merged=True),
    "gguf-f16": Cost(7, 17, merged=True),
    "gguf-q8_0": Cost(9, 9, merged=True),
    "lora-recomputed": Cost(1),
    "peft": Cost(1),
    "qlora": Cost(2, merged=True),
    "lora-2-processes": Cost(6),
    "full-2-blocks": Cost(1, 6, grows=False),
    "full-2-blocks-2-processes": Cost(2, 6, grows=False),
    "full": Cost(30, 98),
}
# Rows that use the merged model.
OF_MERGED = ("loss", "gguf-f16", "gguf-q8_0")
# The exit code of a run that does not fit in memory or on the disk.
DOES_NOT_FIT = 4
# What a step learns from; the same tokens for every row.
TEXT = (
    "The table has one row per order. I read it with pandas, group it by month and sum the amounts. "
    "The code prints the twelve totals, and the largest is that of December. "
)


def write_bf16(path, tensors, generator):
    """A safetensors file of random matrices (standard deviation 0.02) and norms of ones, written one at a time."""
    import numpy as np

    header, end = {}, 0
    for name, shape in tensors:
        size = 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in tensors:
            left = math.prod(shape)
            while left:
                count = min(left, 1 << 24)
                if name.endswith("norm.weight"):
                    values = np.ones(count, np.float32)
                else:
                    values = generator.standard_normal(count, np.float32) * np.float32(0.02)
                (values.view(np.uint32) >> 16).astype(np.uint16).tofile(file)
                left -= count


def matrices(layers):
    hidden, inner = SHAPE["hidden_size"], SHAPE["intermediate_size"]
    keys = hidden // SHAPE["num_attention_heads"] * SHAPE["num_key_value_heads"]
    sizes = {
        "self_attn.q_proj": [hidden, hidden], "self_attn.k_proj": [keys, hidden], "self_attn.v_proj": [keys, hidden],
        "self_attn.o_proj": [hidden, hidden], "mlp.gate_proj": [inner, hidden], "mlp.up_proj": [inner, hidden],
        "mlp.down_proj": [hidden, inner], "input_layernorm": [hidden], "post_attention_layernorm": [hidden],
    }
    table = [SHAPE["vocab_size"], hidden]
    blocks = [
        [(f"model.layers.{n}.{name}.weight", size) for name, size in sizes.items()] for n in range(layers)
    ]
    return [
        [("model.embed_tokens.weight", table)], *blocks,
        [("model.norm.weight", [hidden]), ("lm_head.weight", table)],
    ]


def parameters(layers):
    return sum(math.prod(size) for unit in matrices(layers) for _, size in unit)


def make_model(folder, layers, packages):
    """The model directory, unless a complete one is there."""
    if (folder / "config.json").exists():
        return
    import numpy as np
    from tools import base_tokenizer, tokenizer_of

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    core, _ = base_tokenizer(packages)
    template = (Path(__file__).resolve().parents[1] / "recipes/templates/llama3.jinja").read_text()
    tokenizer_of(core, template).save_pretrained(folder)
    units, generator = matrices(layers), np.random.default_rng(8)
    per_shard = -(-len(units) // SHARDS)
    index = {}
    for number in range(SHARDS):
        tensors = [one for unit in units[number * per_shard:(number + 1) * per_shard] for one in unit]
        name = f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"
        write_bf16(folder / name, tensors, generator)
        index |= {tensor: name for tensor, _ in tensors}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (folder / "config.json").write_text(json.dumps({**SHAPE, "num_hidden_layers": layers}))


def descendants(pid):
    """A process and all below it."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += [int(child) for child in children.read_text().split()]
            except OSError:
                pass
    return found


def memory(pid):
    """Resident and anonymous bytes."""
    try:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        return [1024 * int(lines[key].split()[0]) for key in ("VmRSS", "RssAnon")]
    except (OSError, KeyError):
        return [0, 0]


class Skipped(Exception):
    """Why a row is not measured."""


def measured(command, env=None, log=None):
    """Runs a command. Returns its output, seconds, and the highest resident and anonymous bytes of any one process."""
    began = time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, stderr=log, text=True,
        env={**os.environ, **(env or {})},
    )
    peaks, ended = [0, 0], threading.Event()

    def sample():
        while not ended.wait(0.1):
            for pid in descendants(process.pid):
                peaks[:] = map(max, peaks, memory(pid))

    sampler = threading.Thread(target=sample)
    sampler.start()
    output, _ = process.communicate()
    ended.set()
    sampler.join()
    if process.returncode == DOES_NOT_FIT:
        raise Skipped("it does not fit on this machine, as said above")
    if process.returncode:
        sys.exit(f"{command[0]} {command[1]} failed with exit code {process.returncode}")
    return output, {"seconds": time.monotonic() - began, "resident": peaks[0], "anonymous": peaks[1]}


def write_conversations(path, count, repeats):
    """Conversations whose reply is the text, as often as `repeats(number)` says."""
    rows = [
        {"messages": [{"role": "user", "content": f"Question {n}: what does the file say?"},
                      {"role": "assistant", "content": (TEXT * 5)[: round(repeats(n) * len(TEXT))]}]}
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def digests(folder):
    """SHA-256 of each file of weights."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with open(path, "rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def kill_after_checkpoint(command, out):
    """Starts a run and kills it in the step after its first checkpoint."""
    process = subprocess.Popen([str(part) for part in command])
    while process.poll() is None and not any((out / "checkpoints").glob("step-*")):
        time.sleep(0.2)
    process.kill()
    if process.wait() != -signal.SIGKILL:
        sys.exit("full: the run ended before it could be killed")


def link_with_first_token(model, folder):
    """A directory with the files of a model, whose tokenizer puts the first token before a text, as Llama 3's does:
    llama.cpp's converter recognizes tokenizers by the tokens of a text."""
    from tokenizers import Tokenizer
    from tokenizers.processors import TemplateProcessing

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in model.iterdir():
        (folder / path.name).symlink_to(path.resolve())
    core, first = Tokenizer.from_file(str(model / "tokenizer.json")), "<|begin_of_text|>"
    core.post_processor = TemplateProcessing(
        single=f"{first} $A", pair=f"{first} $A $B", special_tokens=[(first, core.token_to_id(first))]
    )
    (folder / "tokenizer.json").unlink()
    core.save(str(folder / "tokenizer.json"), pretty=False)


def distance(found, wanted):
    """Root mean square."""
    return math.sqrt(fmean((one - other) ** 2 for one, other in zip(found, wanted, strict=True)))


class Bench:
    def __init__(self, asked):
        self.binary, self.folder, self.layers = asked.binary, Path(asked.folder), asked.layers
        self.merge = not asked.no_merge
        self.packages = Path(asked.llama_models)
        self.llama_cpp = Path(asked.llama_cpp) if asked.llama_cpp else None
        self.data, self.out = self.folder / "train.jsonl", self.folder / "out"
        self.merged = self.folder / f"merged-{self.layers}"
        self.exact = self.folder / f"float32-{'merged' if self.merge else 'model'}-{self.layers}"

    def prepare(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        write_conversations(self.data, 4 * STEPS, lambda _: 5)

    def model(self, layers=None):
        """The directory of a model, which is made when it is first needed; its weights are in the page cache."""
        folder = self.folder / f"model-{layers or self.layers}"
        make_model(folder, layers or self.layers, self.packages)
        self.fill_cache(folder)
        return folder

    def fill_cache(self, folder):
        """Puts the weights into the page cache in place of the benchmark's other files, so that no row waits for the disk
        because of what ran before it. What was read twice stays there."""
        for path in self.folder.rglob("*"):
            if path.is_file() and folder not in path.parents:
                with open(path, "rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        buffer = bytearray(1 << 24)
        for path in 2 * sorted(folder.glob("*.safetensors")):
            with open(path, "rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass

    def check_disk(self, name):
        """Skips a row for which the disk has too little space."""
        _, needed = cost(name, self.layers, self.merge)
        if COSTS[name].merged and self.merged.exists():
            needed -= 2 * parameters(self.layers)
        if COSTS[name].grows and not (self.folder / f"model-{self.layers}/config.json").exists():
            needed += 2 * parameters(self.layers)
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise Skipped(f"it needs {needed / 1e9:.0f} GB of disk in {self.folder}, and {free / 1e9:.0f} GB are free")

    def source(self):
        """The merged model of `lora`, which is made if it is missing; with `--no-merge` the model itself."""
        if self.merge and not self.merged.exists():
            self.lora_merged()
        return self.merged if self.merge else self.model()

    def command(self, name, model, sections, processes=1, data=None, context=CONTEXT):
        """The command of a run of ours, whose folder is removed before."""
        shutil.rmtree(self.out, ignore_errors=True)
        recipe = self.folder / f"{name}.toml"
        recipe.write_text(
            f'name = "{name}"\nseed = 1\nmodel = "{model}"\n[[data]]\npath = "{data or self.data}"\n'
            f"[train]\nmax_seq_len = {context}\nmax_steps = {STEPS}\nbatch_size = {processes}\nmicro_batch_size = 1\n"
            f'dtype = "bf16"\ngradient_checkpointing = true\n{sections}\n'
        )
        return [self.binary, "run", recipe, "--out", self.out, "--processes", processes]

    def train(self, *recipe, **options):
        """A run of ours: its seconds per step after the first, peaks, and planned against measured bytes by phase."""
        _, peaks = measured(self.command(*recipe, **options))
        lines = [json.loads(line) for line in (self.out / "metrics.jsonl").read_text().splitlines()]
        phases = json.loads((self.out / "results.json").read_text())["memory"]["phases"]
        return {
            **peaks,
            "step": sum(line["seconds"] for line in lines[1:]) / (len(lines) - 1),
            "tokens": lines[-1]["tokens"],
            "phases": {one["phase"]: one["host"] for one in phases if one["host"]["measured"]},
            "planned_export": next(one["host"]["planned"] for one in phases if one["phase"] == "export"),
        }

    def lora(self, name, merge, processes=1, kept=0.0, quantization=""):
        """`kept`: the share of the blocks that keep their activations."""
        recompute = f"recompute_num_layers = {round(self.layers * (1 - kept))}\n" if kept else ""
        return self.train(
            name, self.model(),
            f"{recompute}merge = {str(merge).lower()}\n[optimizer]\nlearning_rate = 1e-4\n"
            f"[lora]\nrank = {RANK}\nalpha = {2 * RANK}\n{quantization}\n[checkpoint]\nsave_steps = 0\n",
            processes,
        )

    def lora_merged(self):
        row = self.lora("lora", self.merge, kept=0.75)
        if self.merge:
            self.clean()
            (self.out / "model").rename(self.merged)
        return row

    def full(self, name, processes):
        return self.train(
            name, self.model(2),
            '[optimizer]\nlearning_rate = 1e-5\nstate_dtype = "8bit"\nbf16_update = "stochastic_rounding"\n'
            "[checkpoint]\nsave_steps = 0\n",
            processes,
        )

    def full_killed(self):
        """Every parameter of all blocks, with the optimizer state on disk: a whole run, and one that is killed after its
        checkpoint and resumed, which must end with the same bits."""
        short, offload = self.folder / "short.jsonl", self.folder / "offload"
        write_conversations(short, STEPS, lambda _: 2.75)
        recipe = (
            "full-all", self.model(),
            "[optimizer]\nlearning_rate = 1e-5\noptimizer_in_bwd = true\nmax_grad_norm = 0\n"
            'state_dtype = "8bit"\nbf16_update = "stochastic_rounding"\n'
            f'offload = {{ disk = "{offload}" }}\n[checkpoint]\nsave_steps = {STEPS - 1}\nsave_total_limit = 1\n',
        )
        options = {"data": short, "context": FULL_CONTEXT}
        try:
            row = self.train(*recipe, **options)
            whole = digests(self.out / "model")
            command = self.command(*recipe, **options)
            kill_after_checkpoint(command, self.out)
            measured(command)
            return {**row, "same_bits": bool(whole) and digests(self.out / "model") == whole}
        finally:
            shutil.rmtree(offload, ignore_errors=True)

    def peft(self):
        output, peaks = measured([sys.executable, __file__, "--peft", self.model(), self.data], THREADS)
        return {**peaks, **json.loads(output.splitlines()[-1])}

    def reference(self, *arguments, log=None):
        output, peaks = measured([sys.executable, REFERENCE, *arguments], THREADS, log)
        return json.loads(output.splitlines()[-1]), peaks

    def float32(self):
        """The losses of the conversations in float32; in files beside them are tokens, and the logits of the first token
        of each reply."""
        losses = self.exact / "losses.json"
        if not losses.exists():
            source = self.source()
            shutil.rmtree(self.exact, ignore_errors=True)
            self.exact.mkdir()
            data, texts = self.exact / "conversations.jsonl", self.exact / "texts.jsonl"
            write_conversations(data, CONVERSATIONS, lambda n: 1 + n % 5)
            texts.write_text(measured([self.binary, "tokens", source, data])[0])
            found, _ = self.reference("float32", source, texts, self.exact / "first.safetensors")
            losses.write_text(json.dumps(found))
        return json.loads(losses.read_text())

    def loss(self):
        exact, source = self.float32(), self.source()
        command = [self.binary, "losses", source, self.exact / "conversations.jsonl", "--dtype", "bf16"]
        output, peaks = measured(command)
        ours = [json.loads(line)["loss"] for line in output.splitlines()]
        theirs, _ = self.reference("transformers", source, self.exact / "texts.jsonl")
        return {**peaks, "off": distance(ours, exact), "transformers_off": distance(theirs, exact)}

    def gguf(self, kind):
        self.float32()
        target = self.folder / "model.gguf"
        try:
            _, peaks = measured([self.binary, "export", self.source(), "--gguf", target, "--type", kind])
            row = {**peaks, "size": target.stat().st_size}
            with open(self.folder / "llamacpp.log", "w") as log:
                row["first_tokens"], _ = self.reference(
                    "llamacpp", target, self.exact / "texts.jsonl", self.exact / "first.safetensors", log=log
                )
            target.unlink()
            return {**row, "converter": self.convert(target, kind)}
        finally:
            target.unlink(missing_ok=True)

    def convert(self, target, kind):
        """llama.cpp's own converter on the same model; `None` without its source."""
        if not self.llama_cpp:
            return None
        folder = self.folder / "for-converter"
        link_with_first_token(self.source(), folder)
        converter = self.llama_cpp / "convert_hf_to_gguf.py"
        with open(self.folder / "converter.log", "w") as log:
            command = [sys.executable, converter, folder, "--outfile", target, "--outtype", kind]
            _, peaks = measured(command, THREADS, log)
        shutil.rmtree(folder)
        return {**peaks, "size": target.stat().st_size}

    def clean(self):
        """Removes the merged model, and what was computed of it."""
        for folder in (self.merged, self.exact):
            shutil.rmtree(folder, ignore_errors=True)

    def rows(self):
        return {
            "lora": self.lora_merged,
            "loss": self.loss,
            "gguf-f16": lambda: self.gguf("f16"),
            "gguf-q8_0": lambda: self.gguf("q8_0"),
            "lora-recomputed": lambda: self.lora("lora-recomputed", False),
            "peft": self.peft,
            "qlora": lambda: self.lora("qlora", self.merge, kept=0.375, quantization='quantization = "nf4"'),
            "lora-2-processes": lambda: self.lora("lora2", False, processes=2),
            "full-2-blocks": lambda: self.full("full", 1),
            "full-2-blocks-2-processes": lambda: self.full("full2", 2),
            "full": self.full_killed,
        }


def peft(model, data):
    """LoRA by PEFT on one conversation a step, in a process of its own."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    began = time.perf_counter()
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.bfloat16, attn_implementation="sdpa")
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    net = get_peft_model(net, LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=targets, task_type="CAUSAL_LM"))
    net.enable_input_require_grads()
    net.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    net.train()
    loading = time.perf_counter() - began
    tokenizer = AutoTokenizer.from_pretrained(model)
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-4, fused=True)
    times = []
    for line in Path(data).read_text().splitlines()[:STEPS]:
        ids = tokenizer.apply_chat_template(json.loads(line)["messages"], return_dict=True)["input_ids"][:CONTEXT]
        batch = torch.tensor([ids])
        began = time.perf_counter()
        net(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.perf_counter() - began)
    print(json.dumps({"step": sum(times[1:]) / len(times[1:]), "tokens": len(ids), "load": loading}))


def table(rows):
    gib = lambda bytes: f"{bytes / GIB:.2f}"  # noqa: E731
    print("\n| | resident, GiB | anonymous, GiB | s per step | tokens per step | whole, s |\n| --- | --- | --- | --- | --- | --- |")
    for name, row in rows.items():
        step = f"{row['step']:.1f} | {row['tokens']}" if "step" in row else " | "
        print(f"| {name} | {gib(row['resident'])} | {gib(row['anonymous'])} | {step} | {row['seconds']:.0f} |")
        if converter := row.get("converter"):
            peaks = f"{gib(converter['resident'])} | {gib(converter['anonymous'])}"
            print(f"| {name}, llama.cpp's converter | {peaks} |  |  | {converter['seconds']:.0f} |")
    print("\nMeasured peak of each phase as a share of the planned one:\n")
    for name, row in rows.items():
        if "phases" in row:
            shares = (f"{phase} {host['measured'] / host['planned']:.2f}" for phase, host in row["phases"].items())
            print(f"- {name}: {', '.join(shares)}")
        if "size" in row and (planned := rows.get("lora", {}).get("planned_export")):
            print(f"- {name}: export {row['resident'] / planned:.2f}")
    for name in ("lora", "lora-recomputed"):
        if name in rows and "peft" in rows:
            print(f"\nA step of {name} takes {rows[name]['step'] / rows['peft']['step']:.2f} of PEFT's time.")
    if "lora" in rows and "qlora" in rows:
        print(f"A QLoRA step takes {rows['qlora']['step'] / rows['lora']['step']:.2f} of a LoRA step's.")
    for name, row in rows.items():
        if first := row.get("first_tokens"):
            print(f"{name}, {gib(row['size'])} GiB: {first['same']} of {first['texts']} first tokens of llama.cpp are the "
                  f"likeliest in float32; the farthest is {first['farthest']:.4f} below.")
    if "loss" in rows:
        print(f"Loss of {CONVERSATIONS} conversations in bf16: {rows['loss']['off']:.4f} nats from float32 (root mean "
              f"square), transformers' {rows['loss']['transformers_off']:.4f}.")
    if "full" in rows:
        print(f"Every parameter, killed and resumed: {'the same' if rows['full']['same_bits'] else 'OTHER'} bits.")
    pair = [rows.get("full-2-blocks-2-processes"), rows.get("full-2-blocks")]
    if all(pair):
        print(f"Two blocks, every parameter: each of two processes has {pair[0]['resident'] / pair[1]['resident']:.2f} of one alone.")


def cost(name, layers, merge):
    """Minutes and bytes of disk of a row, which grow with the number of parameters."""
    of = COSTS[name]
    share = parameters(layers) / parameters(SHAPE["num_hidden_layers"]) if of.grows else 1
    merged = 2 * parameters(layers) if of.merged and merge else 0
    return of.minutes * share, 1e9 * of.gb * share + merged


def print_costs(layers, merge):
    print(f"{layers} blocks; the model takes {2 * parameters(layers) / 1e9:.0f} GB of disk.\n")
    print("| row | minutes | GB of disk beside the model |\n| --- | --- | --- |")
    for name in COSTS:
        minutes, disk = cost(name, layers, merge)
        note = " (only if it is named)" if name == "full" else ""
        print(f"| {name}{note} | {max(1, round(minutes))} | {round(disk / 1e9)} |")


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("binary")
    parse.add_argument("llama_models")
    parse.add_argument("--layers", type=int, default=SHAPE["num_hidden_layers"])
    parse.add_argument("--folder", default="data/bench/llama")
    parse.add_argument("--llama-cpp", metavar="DIR")
    parse.add_argument("--only", nargs="+", metavar="ROW", choices=COSTS, help=f"of {', '.join(COSTS)}")
    parse.add_argument("--no-merge", action="store_true")
    parse.add_argument("--again", action="store_true")
    parse.add_argument("--dry-run", action="store_true")
    asked = parse.parse_args()
    if asked.dry_run:
        return print_costs(asked.layers, not asked.no_merge)
    bench = Bench(asked)
    bench.prepare()
    kept = bench.folder / f"rows-{asked.layers}.json"
    rows = json.loads(kept.read_text()) if kept.exists() and not asked.again else {}
    wanted = asked.only or [name for name in COSTS if name != "full"]
    left = {name: measure for name, measure in bench.rows().items() if name in wanted and name not in rows}
    while left:
        name = next(iter(left))
        print(f"llama: {name}", file=sys.stderr, flush=True)
        measure = left.pop(name)
        try:
            bench.check_disk(name)
            rows[name] = measure()
        except Skipped as reason:
            print(f"llama: {name} is skipped: {reason}", file=sys.stderr)
        shutil.rmtree(bench.out, ignore_errors=True)
        kept.write_text(json.dumps(rows, indent=1))
        if not left.keys() & set(OF_MERGED):
            bench.clean()
    bench.clean()
    print(f"llama: {asked.layers} blocks of Llama 3 8B's shape, bf16, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    table(rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peft"]:
        peft(sys.argv[2], sys.argv[3])
    else:
        main()
