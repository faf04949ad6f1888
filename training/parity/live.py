"""Compares a model directory with transformers: tokens of conversations, logits, loss and every gradient.

    python training/parity/live.py PYBENCH_TRAIN MODEL_DIR DATA.parquet
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

TOLERANCE = 1e-4
ROWS = 2  # conversations whose logits and gradients are compared
PLACES = 256  # first tokens of each


def off(found, wanted):
    return ((found - wanted).norm() / wanted.norm()).item()


def worse(one, other):
    """The maximum; NaN counts as the largest value."""
    return one if one != one or one > other else other


def tokens(binary, folder, data):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    lines = subprocess.run([binary, "tokens", folder, data], check=True, stdout=subprocess.PIPE).stdout
    ours = [json.loads(line) for line in lines.splitlines()]
    rows = pq.read_table(data, columns=["messages"])["messages"].to_pylist()
    wanted = [tokenizer.apply_chat_template(m, tokenize=True, return_dict=False) for m in rows]
    equal = sum(mine["ids"] == theirs for mine, theirs in zip(ours, wanted, strict=True))
    print(f"tokens: {equal} of {len(rows)} conversations are transformers' own")
    return equal == len(rows), ours


def numbers(binary, folder, ours):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    worst = {"logits": 0.0, "loss": 0.0, "gradients": 0.0}
    for row in ours[:ROWS]:
        ids, trained = row["ids"][:PLACES], row["trained"][:PLACES]
        with tempfile.TemporaryDirectory() as scratch:
            request, answer = Path(scratch, "request.json"), Path(scratch, "answer.safetensors")
            # Every token is a target here, so that short beginnings have some.
            request.write_text(json.dumps({"ids": ids, "weights": [1.0] * len(ids)}))
            subprocess.run([binary, "probe", folder, request, answer], check=True)
            found = load_file(answer)
        batch = torch.tensor([ids])
        model.zero_grad()
        logits = model(batch).logits[0]
        # In float64: libtorch's float32 cross-entropy over a whole vocabulary has an error of 1e-5 nats, larger
        # than all other differences here.
        loss = torch.nn.functional.cross_entropy(logits[:-1].double(), batch[0, 1:])
        loss.backward()
        rough = torch.nn.functional.cross_entropy(logits[:-1].detach(), batch[0, 1:])
        worst["logits"] = worse(worst["logits"], off(found["logits"][0], logits.detach()))
        worst["loss"] = worse(worst["loss"], abs(found["loss"].item() - loss.item()) / loss.item())
        print(f"loss: ours {found['loss'].item():.7f}, theirs {loss.item():.7f}, in float32 {rough.item():.7f}")
        for name, parameter in model.named_parameters():
            worst["gradients"] = worse(worst["gradients"], off(found[f"grad.{name}"], parameter.grad))
    print("largest distance by norm:", ", ".join(f"{key} {value:.2e}" for key, value in worst.items()))
    return all(value <= TOLERANCE for value in worst.values())


def main():
    binary, folder, data = sys.argv[1:]
    same, ours = tokens(binary, folder, data)
    if not (numbers(binary, folder, ours) and same):
        sys.exit("not equal")


if __name__ == "__main__":
    main()
