"""Makes what transformers computes on SmolLM2-135M-Instruct, for the tests of `training`: too much to commit
whole, so of logits and gradients there are the norm and two projections, each onto cos(i * step).

    python training/parity/smollm2.py MODEL_DIR training/tests/data/smollm2.json
"""
import hashlib
import json
import platform
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from conversations import CONVERSATIONS

STEPS = (0.7, 0.81)
# Documents of one text; both are of one loss.
CASES = {"plain": [64], "packed": [40, 24]}


def shadow(tensor):
    flat = tensor.detach().double().flatten()
    places = torch.arange(flat.numel(), dtype=torch.float64)
    return [flat.norm().item(), *((places * step).cos().dot(flat).item() for step in STEPS)]


def case(model, ids, lengths):
    model.zero_grad()
    logits, losses, start = [], [], 0
    for length in lengths:
        part = ids[start : start + length]
        out = model(part[None]).logits[0]
        logits.append(out.detach())
        # In float64: libtorch's own adds up a whole vocabulary in float32.
        losses.append(torch.nn.functional.cross_entropy(out[:-1].double(), part[1:], reduction="sum"))
        start += length
    loss = sum(losses) / (len(ids) - len(lengths))
    loss.backward()
    gradients = {name: shadow(parameter.grad) for name, parameter in model.named_parameters()}
    return dict(lengths=lengths, loss=loss.item(), logits=shadow(torch.cat(logits)), gradients=gradients)


def conversations(tokenizer):
    specials = set(tokenizer.all_special_tokens)
    for messages in CONVERSATIONS:
        hostile = any(s in m["content"] for m in messages for s in specials)
        if not hostile:
            yield dict(messages=messages, ids=tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False))


def main():
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.arange(64) * 7919 % 49152
    made = dict(
        script="training/parity/smollm2.py",
        versions=dict(python=platform.python_version(), torch=torch.__version__, transformers=transformers.__version__),
        weights=hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest(),
        ids=ids.tolist(),
        cases={name: case(model, ids, lengths) for name, lengths in CASES.items()},
        conversations=list(conversations(AutoTokenizer.from_pretrained(folder))),
    )
    out.write_text(json.dumps(made, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
