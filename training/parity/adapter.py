"""Trains a LoRA adapter of a model for a few steps, loads it with PEFT, and compares PEFT's logits with those of our
merged model.

    python training/parity/adapter.py PYBENCH_TRAIN MODEL_DIR
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

TOLERANCE = 1e-4
# By how much the adapter must change the logits, so that one without effect is noticed.
CHANGE = 1e-2
TEXT = "The table has one row per order; the twelve totals are printed by month."
RECIPE = """name = "adapter"
seed = 1
model = "{model}"
[[data]]
path = "{data}"
[train]
max_seq_len = 128
max_steps = 4
batch_size = 2
micro_batch_size = 1
dtype = "float32"
allow_trained_pad = true
[optimizer]
learning_rate = 1e-2
[lora]
rank = 4
alpha = 8
[checkpoint]
save_steps = 0
"""


def off(found, wanted):
    return ((found - wanted).norm() / wanted.norm()).item()


def train(binary, model, scratch):
    """The folder of a run with an adapter and a merged model."""
    data, recipe, out = scratch / "train.jsonl", scratch / "adapter.toml", scratch / "out"
    messages = [{"role": "user", "content": "What does the file say?"}, {"role": "assistant", "content": TEXT}]
    data.write_text((json.dumps({"messages": messages}) + "\n") * 8)
    recipe.write_text(RECIPE.format(model=model, data=data))
    subprocess.run([binary, "run", recipe, "--out", out], check=True)
    return out


def our_logits(binary, model, ids, scratch):
    request, answer = scratch / "request.json", scratch / "answer.safetensors"
    request.write_text(json.dumps({"ids": ids, "weights": [1.0] * len(ids)}))
    subprocess.run([binary, "probe", model, request, answer], check=True)
    return load_file(answer)["logits"][0]


def main():
    binary, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    ids = AutoTokenizer.from_pretrained(folder)(TEXT)["input_ids"]
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with tempfile.TemporaryDirectory() as scratch, torch.no_grad():
        plain = base(torch.tensor([ids])).logits[0]
        out = train(binary, folder, Path(scratch))
        adapted = PeftModel.from_pretrained(base, out / "adapter").eval()
        theirs = adapted(torch.tensor([ids])).logits[0]
        ours = our_logits(binary, out / "model", ids, Path(scratch))
    distance, change = off(ours, theirs), off(theirs, plain)
    print(f"PEFT: logits differ by {distance:.2e} from ours; the adapter changes them by {change:.2e}")
    if not (distance <= TOLERANCE and change >= CHANGE):
        sys.exit("not equal")


if __name__ == "__main__":
    main()
