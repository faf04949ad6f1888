"""Compares tokens per second and peak memory of fine-tuning with transformers' Trainer: same weights, same
conversations, same threads.

    python training/benches/train.py PYBENCH_TRAIN [--model NAME] [--data FILE] [--tokens N] [--steps N] …

Each step is one conversation of more than half of `--tokens` and at most all of them, so that neither packing nor
padding matters. The first step is a warmup and is not counted. CPU seconds per step (all threads, system time
included) are reported too, because wall time depends on other load. Peak memory is the maximum resident set
size of the process, for transformers including Python and its libraries.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WARM = 1


def conversations(binary, model, data, most, count):
    """Conversations cut at a turn, with their tokens and which of them are trained."""
    import pyarrow.parquet as pq

    rows = pq.read_table(data, columns=["messages"])["messages"].to_pylist()
    whole = [row[:end] for row in rows for end in range(len(row), 1, -1) if row[end - 1]["role"] == "assistant"]
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        for messages in whole:
            file.write(json.dumps({"messages": messages}) + "\n")
        file.flush()
        out = subprocess.run([binary, "tokens", model, file.name], check=True, stdout=subprocess.PIPE).stdout
    chosen, seen = [], set()
    for messages, line in zip(whole, out.splitlines(), strict=True):
        tokens = json.loads(line)
        task = messages[1]["content"] if len(messages) > 1 else ""
        if most // 2 < len(tokens["ids"]) <= most and task not in seen:
            seen.add(task)
            chosen.append((messages, tokens))
    chosen.sort(key=lambda pair: -len(pair[1]["ids"]))
    if len(chosen) < count:
        sys.exit(f"only {len(chosen)} conversations of {most // 2} to {most} tokens; lower --tokens or --steps")
    return chosen[:count]


def peak_of(process, steps=None):
    """Waits for a child. Returns its peak resident set in bytes, and its CPU seconds at each line of the file
    `steps`."""
    clock, seen = os.sysconf("SC_CLK_TCK"), []
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if steps and steps.exists():
            lines = steps.read_text().count("\n")
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            used = (int(fields[11]) + int(fields[12])) / clock
            seen += [used] * (lines - len(seen))
        time.sleep(0.02)
    if status:
        sys.exit(f"{process.args[0]} failed")
    return usage.ru_maxrss * 1024, seen


def ours(binary, folder, model, chosen, most, recompute):
    scratch = Path(folder)
    (scratch / "data.jsonl").write_text("".join(json.dumps({"messages": m}) + "\n" for m, _ in chosen))
    (scratch / "recipe.toml").write_text(
        f"""name = "bench"
seed = 1
model = "{model}"
[[data]]
path = "{scratch / 'data.jsonl'}"
[train]
max_seq_len = {most}
max_steps = {len(chosen)}
gradient_checkpointing = {str(recompute).lower()}
allow_trained_pad = true
[optimizer]
learning_rate = 1e-5
lr_scheduler = "constant"
[checkpoint]
save_steps = 0
"""
    )
    out = scratch / f"out-{recompute}"
    command = [binary, "run", str(scratch / "recipe.toml"), "--out", str(out)]
    peak, used = peak_of(subprocess.Popen(command, stdout=subprocess.DEVNULL), out / "metrics.jsonl")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return {
        "steps": [[line["tokens"], line["seconds"]] for line in lines],
        "losses": [line["loss"] for line in lines],
        "processor": (used[-1] - used[0]) / (len(used) - 1) if len(used) > 1 else float("nan"),
        "peak": peak,
    }


def theirs(folder, model, checkpointing):
    command = [sys.executable, __file__, "--trainer", folder, model, str(int(checkpointing))]
    peak, _ = peak_of(subprocess.Popen(command, stdout=subprocess.DEVNULL))
    found = json.loads((Path(folder) / "theirs.json").read_text())
    return {**found, "peak": peak}


def trainer(folder, model, checkpointing):
    """transformers' Trainer, in a process of its own."""
    import torch
    from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    documents = json.loads((Path(folder) / "tokens.json").read_text())
    items = [
        {"input_ids": d["ids"], "labels": [i if t else -100 for i, t in zip(d["ids"], d["trained"], strict=True)]}
        for d in documents
    ]
    net = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa")
    times, losses, processor = [], [], []

    class Clock(TrainerCallback):
        def on_step_begin(self, *_, **__):
            self.start = time.perf_counter()

        def on_step_end(self, *_, **__):
            times.append(time.perf_counter() - self.start)
            processor.append(time.process_time())

        def on_log(self, *_, logs=None, **__):
            if logs and "loss" in logs:
                losses.append(logs["loss"])

    class Ordered(Trainer):
        def _get_train_sampler(self, *_, **__):
            return torch.utils.data.SequentialSampler(self.train_dataset)

    arguments = TrainingArguments(
        output_dir=str(Path(folder) / "theirs"), use_cpu=True, per_device_train_batch_size=1,
        num_train_epochs=1, learning_rate=1e-5, lr_scheduler_type="constant", save_strategy="no",
        report_to=[], gradient_checkpointing=checkpointing, optim="adamw_torch_fused",
        max_grad_norm=1.0, logging_steps=1, disable_tqdm=True, dataloader_num_workers=0,
    )
    collate = lambda rows: {key: torch.tensor([row[key] for row in rows]) for key in rows[0]}  # noqa: E731
    Ordered(model=net, args=arguments, train_dataset=items, data_collator=collate, callbacks=[Clock()]).train()
    steps = [[len(item["input_ids"]), seconds] for item, seconds in zip(items, times, strict=True)]
    (Path(folder) / "theirs.json").write_text(json.dumps({
        "steps": steps, "losses": losses,
        "processor": (processor[-1] - processor[0]) / max(1, len(processor) - 1),
    }))


def speed(run):
    counted = run["steps"][WARM:]
    return sum(tokens for tokens, _ in counted) / sum(seconds for _, seconds in counted)


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("binary")
    parse.add_argument("--model", default="smollm2-135m-instruct")
    parse.add_argument("--data", default="data/runs/quickstart/dataset/data/train-00000-of-00001.parquet")
    parse.add_argument("--tokens", type=int, default=1024)
    parse.add_argument("--steps", type=int, default=8)
    parse.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parse.add_argument("--only", choices=["off", "on"], help="run only without or only with gradient checkpointing")
    asked = parse.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(asked.threads)
    model = subprocess.run([asked.binary, "model", asked.model], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    chosen = conversations(asked.binary, model, asked.data, asked.tokens, asked.steps)
    total = sum(len(tokens["ids"]) for _, tokens in chosen)
    print(f"train: {asked.model} · {asked.steps} steps of one conversation, {total} tokens · "
          f"{os.environ['OMP_NUM_THREADS']} threads · load {os.getloadavg()[0]:.1f}")
    print("\n| | ours, tok/s | Trainer, tok/s | speed | ours, GiB | Trainer, GiB | memory |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokens.json").write_text(json.dumps([tokens for _, tokens in chosen]))
        for way in [asked.only] if asked.only else ["off", "on"]:
            saving = way == "on"
            a = ours(asked.binary, folder, model, chosen, asked.tokens, saving)
            b = theirs(folder, model, saving)
            gib = 2**30
            print(f"| gradient checkpointing {way} | {speed(a):.1f} | {speed(b):.1f} | {speed(a) / speed(b):.2f} | "
                  f"{a['peak'] / gib:.2f} | {b['peak'] / gib:.2f} | {a['peak'] / b['peak']:.2f} |")
            print(f"  CPU seconds per step: ours {a['processor']:.2f}, Trainer {b['processor']:.2f}, "
                  f"{b['processor'] / a['processor']:.2f} times", flush=True)
            print(f"  mean loss: ours {sum(a['losses']) / len(a['losses']):.4f}, "
                  f"Trainer {sum(b['losses']) / len(b['losses']):.4f}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--trainer"]:
        trainer(sys.argv[2], sys.argv[3], bool(int(sys.argv[4])))
    else:
        main()
