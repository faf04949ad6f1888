"""Measures memory and time of fine-tuning a model of Llama 3 8B's shape on a CPU, beside PEFT.

    python training/benches/llama.py PYBENCH_TRAIN LLAMA_MODELS [--layers N] [--folder DIR] [--only ROW …] [--no-merge] [--again]

The weights are random (bf16, four shards); the tokenizer is Llama 3's, from the unpacked package `llama-models` in
LLAMA_MODELS. At all 32 layers the model takes 16 GB of disk, a merged one 16 GB more while its row runs, and one of the
two GGUF files up to 16 GB. Each row runs in processes of its own and is kept in DIR/rows.json, so that an interrupted
benchmark continues; `--again` measures all rows again. `--no-merge` leaves out the merged model of LoRA and QLoRA, and
its disk. `lora-kept` keeps the activations of three quarters of the blocks. Memory is sampled ten times a second: `resident` is all of a process,
`anonymous` is what does not belong to a file and cannot be given back.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "parity"))
GIB = 2**30
SHAPE = json.loads((Path(__file__).resolve().parents[1] / "shapes/llama-3-8b.json").read_text())
STEPS, CONTEXT, RANK = 3, 256, 8
SHARDS = 4
# What a step learns from; the same tokens for every row.
TEXT = (
    "The table has one row per order. I read it with pandas, group it by month and sum the amounts. "
    "The code prints the twelve totals, and the largest is that of December. "
)


def write_bf16(path, tensors, generator):
    """A safetensors file of random matrices (standard deviation 0.02) and norms of ones, written one at a time."""
    header, end = {}, 0
    for name, shape in tensors:
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, shape in tensors:
            left = int(np.prod(shape))
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


def make_model(folder, layers, packages):
    """The model directory, unless a complete one is there."""
    if (folder / "config.json").exists():
        return
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


def measured(command, env=None):
    """Runs a command. Returns its output, seconds, and the highest resident and anonymous bytes of any one process."""
    began = time.monotonic()
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
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
    if process.returncode:
        sys.exit(f"{command[0]} {command[1]} failed with exit code {process.returncode}")
    return output, {"seconds": time.monotonic() - began, "resident": peaks[0], "anonymous": peaks[1]}


class Bench:
    def __init__(self, asked):
        self.binary, self.folder, self.layers = asked.binary, Path(asked.folder), asked.layers
        self.merge = not asked.no_merge
        self.packages = Path(asked.llama_models)
        self.data = self.folder / "train.jsonl"

    def prepare(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        rows = [
            {"messages": [{"role": "user", "content": f"Question {n}: what does the file say?"},
                          {"role": "assistant", "content": TEXT * 5}]}
            for n in range(4 * STEPS)
        ]
        self.data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def model(self, layers=None):
        """The directory of a model, which is made when it is first needed."""
        folder = self.folder / f"model-{layers or self.layers}"
        make_model(folder, layers or self.layers, self.packages)
        return folder

    def train(self, name, model, sections, processes=1, recompute=""):
        """A run of ours: its seconds per step after the first, peaks, and planned against measured bytes by phase."""
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        recipe = self.folder / f"{name}.toml"
        recipe.write_text(
            f'name = "{name}"\nseed = 1\nmodel = "{model}"\n[[data]]\npath = "{self.data}"\n'
            f"[train]\nmax_seq_len = {CONTEXT}\nmax_steps = {STEPS}\nbatch_size = {processes}\nmicro_batch_size = 1\n"
            f'dtype = "bf16"\ngradient_checkpointing = true\n{recompute}{sections}\n'
        )
        command = [self.binary, "run", recipe, "--out", out, "--processes", processes]
        _, peaks = measured(command)
        lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        phases = json.loads((out / "results.json").read_text())["memory"]["phases"]
        return {
            **peaks,
            "step": sum(line["seconds"] for line in lines[1:]) / (len(lines) - 1),
            "tokens": lines[-1]["tokens"],
            "phases": {one["phase"]: one["host"] for one in phases if one["host"]["measured"]},
        }

    def lora(self, name, merge, processes=1, quantization="", recompute=""):
        return self.train(
            name, self.model(),
            f"merge = {str(merge).lower()}\n[optimizer]\nlearning_rate = 1e-4\n"
            f"[lora]\nrank = {RANK}\nalpha = {2 * RANK}\n{quantization}\n[checkpoint]\nsave_steps = 0\n",
            processes, recompute,
        )

    def full(self, name, processes):
        return self.train(
            name, self.model(2),
            '[optimizer]\nlearning_rate = 1e-5\nstate_dtype = "8bit"\nbf16_update = "stochastic_rounding"\n'
            "[checkpoint]\nsave_steps = 0\n",
            processes,
        )

    def peft(self):
        output, peaks = measured(
            [sys.executable, __file__, "--peft", self.model(), self.data], {"OMP_NUM_THREADS": str(os.cpu_count())}
        )
        return {**peaks, **json.loads(output.splitlines()[-1])}

    def gguf(self, kind):
        target = self.folder / "model.gguf"
        _, peaks = measured([self.binary, "export", self.model(), "--gguf", target, "--type", kind])
        size = target.stat().st_size
        target.unlink()
        return {**peaks, "size": size}

    def rows(self):
        return {
            "lora": lambda: self.lora("lora", self.merge),
            "lora-kept": lambda: self.lora(
                "lora-kept", False, recompute=f"recompute_num_layers = {self.layers // 4}\n"
            ),
            "peft": self.peft,
            "qlora": lambda: self.lora("qlora", self.merge, quantization='quantization = "nf4"'),
            "lora-2-processes": lambda: self.lora("lora2", False, processes=2),
            "full-2-blocks": lambda: self.full("full", 1),
            "full-2-blocks-2-processes": lambda: self.full("full2", 2),
            "gguf-f16": lambda: self.gguf("f16"),
            "gguf-q8_0": lambda: self.gguf("q8_0"),
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
    print("\nMeasured peak of each phase as a share of the planned one:\n")
    for name, row in rows.items():
        if "phases" in row:
            shares = (f"{phase} {host['measured'] / host['planned']:.2f}" for phase, host in row["phases"].items())
            print(f"- {name}: {', '.join(shares)}")
    for name in ("lora", "lora-kept"):
        if name in rows and "peft" in rows:
            print(f"\nA step of {name} takes {rows[name]['step'] / rows['peft']['step']:.2f} of PEFT's time.")
    if "lora" in rows and "qlora" in rows:
        print(f"A QLoRA step takes {rows['qlora']['step'] / rows['lora']['step']:.2f} of a LoRA step's.")
    pair = [rows.get("full-2-blocks-2-processes"), rows.get("full-2-blocks")]
    if all(pair):
        print(f"Two blocks, every parameter: each of two processes has {pair[0]['resident'] / pair[1]['resident']:.2f} of one alone.")


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("binary")
    parse.add_argument("llama_models")
    parse.add_argument("--layers", type=int, default=SHAPE["num_hidden_layers"])
    parse.add_argument("--folder", default="data/bench/llama")
    parse.add_argument("--only", nargs="+", metavar="ROW")
    parse.add_argument("--no-merge", action="store_true")
    parse.add_argument("--again", action="store_true")
    asked = parse.parse_args()
    bench = Bench(asked)
    bench.prepare()
    kept = bench.folder / f"rows-{asked.layers}.json"
    rows = json.loads(kept.read_text()) if kept.exists() and not asked.again else {}
    for name, measure in bench.rows().items():
        if name in rows or asked.only and name not in asked.only:
            continue
        print(f"llama: {name}", file=sys.stderr, flush=True)
        rows[name] = measure()
        shutil.rmtree(bench.folder / "out", ignore_errors=True)
        kept.write_text(json.dumps(rows, indent=1))
    print(f"llama: {asked.layers} blocks of Llama 3 8B's shape, bf16, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    table(rows)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peft"]:
        peft(sys.argv[2], sys.argv[3])
    else:
        main()
