"""What TRL's DPOTrainer computes. On a tiny random model: loss, metrics and every gradient of a batch of pairs, which
`fixtures.py` keeps for the tests. On a model directory: the metrics of some steps, beside ours.

    python training/parity/dpo.py PYBENCH_TRAIN MODEL_DIR
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference

# Lengths of prompt, chosen reply and rejected reply.
PAIRS = [(5, 4, 6), (3, 7, 3), (8, 2, 5)]
CASES = {
    "sigmoid": dict(beta=0.1, loss_type=["sigmoid"]),
    "sigmoid_beta": dict(beta=0.5, loss_type=["sigmoid"]),
    "sigmoid_norm": dict(beta=2.0, loss_type=["sigmoid_norm"]),
    "hinge": dict(beta=0.2, loss_type=["hinge"]),
    "ipo": dict(beta=0.3, loss_type=["ipo"]),
    "robust": dict(beta=0.2, loss_type=["robust"], label_smoothing=0.1),
    "with_sft": dict(beta=0.1, loss_type=["sigmoid", "sft"], loss_weights=[1.0, 0.2]),
}
METRICS = ["rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"]


def pairs(vocabulary):
    generator = torch.Generator().manual_seed(13)
    tokens = lambda count: torch.randint(1, vocabulary, (count,), generator=generator).tolist()
    return [dict(prompt_ids=tokens(prompt), chosen_ids=tokens(chosen), rejected_ids=tokens(rejected))
            for prompt, chosen, rejected in PAIRS]


def reference_of(folder):
    """The model at another point, so that rewards are not 0."""
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    torch.manual_seed(17)
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return reference


def run(folder, tokenizer, case, batch):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    # DPOTrainer wants data; the batch is given to it directly.
    data = Dataset.from_list([dict(prompt="a", chosen="b", rejected="c")])
    with tempfile.TemporaryDirectory() as scratch:
        args = DPOConfig(output_dir=scratch, use_cpu=True, bf16=False, report_to="none", **case)
        trainer = DPOTrainer(model, ref_model=reference_of(folder), args=args, train_dataset=data, processing_class=tokenizer)
        chosen, rejected = trainer.compute_ref_log_probs(trainer.ref_model, batch)
        trainer.model.train()
        loss = trainer.compute_loss(trainer.model, dict(batch))
    loss.backward()
    measured = [trainer._metrics["train"][name][0] for name in METRICS]
    tensors = {"loss": loss.detach()[None], "metrics": torch.tensor(measured), "ref_chosen_logps": chosen, "ref_rejected_logps": rejected}
    for name, parameter in trainer.model.named_parameters():
        tensors[f"grad.{name}"] = parameter.grad.clone()
    return tensors


def dpo_fixtures(out):
    """For the model `llama` of the other fixtures."""
    folder = out / "llama"
    tokenizer = AutoTokenizer.from_pretrained(out / "templates" / "chatml")
    rows = pairs(json.loads((folder / "config.json").read_text())["vocab_size"])
    batch = DataCollatorForPreference(pad_token_id=0)(rows)
    expected = {}
    for name, case in CASES.items():
        expected |= {f"{name}.{key}": value.contiguous() for key, value in run(folder, tokenizer, case, batch).items()}
    (out / "dpo").mkdir(exist_ok=True)
    save_file(expected, out / "dpo" / "expected.safetensors")
    (out / "dpo" / "cases.json").write_text(json.dumps(dict(pairs=rows, cases=CASES)) + "\n")


STEPS = 3
RATE = 5e-5
BETA = 0.1
# Of the first step; and of later ones, because the first update of AdamW turns gradients around 0 that differ by rounding
# into steps as large as the learning rate.
TOLERANCE, LATER = 1e-4, 1e-3
COMPARED = ["loss", "grad_norm", *METRICS]


def conversations():
    says = lambda role, content: dict(role=role, content=content)
    return [dict(prompt=[says("user", f"What is {a} + {b}?"), says("assistant", "Shall I compute it?"), says("user", "Yes.")],
                 chosen=[says("assistant", f"{a} + {b} = {a + b}.")],
                 rejected=[says("assistant", f"It is {a * b}, I think, or maybe not.")])
            for a, b in [(3, 4), (17, 25), (6, 90), (140, 2)]]


def ours(binary, folder, rows, scratch):
    """Our metrics of each step."""
    data, recipe = scratch / "pairs.jsonl", scratch / "recipe.toml"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe.write_text(f"""
name = "dpo-parity"
model = "{Path(folder).resolve()}"
data = [{{ path = "{data}" }}]
[dpo]
beta = {BETA}
[train]
max_seq_len = 512
batch_size = {len(rows)}
micro_batch_size = {len(rows)}
max_steps = {STEPS}
allow_trained_pad = true
[optimizer]
learning_rate = {RATE}
lr_scheduler = "constant"
[checkpoint]
save_steps = 0
""")
    subprocess.run([binary, "run", recipe, "--out", scratch / "out"], check=True, stderr=subprocess.DEVNULL)
    return [json.loads(line) for line in (scratch / "out" / "metrics.jsonl").read_text().splitlines()]


def theirs(folder, rows, scratch):
    """TRL's. Tokens after the end of turn are left out: its template text is not trained here."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    args = DPOConfig(output_dir=str(scratch / "trl"), use_cpu=True, bf16=False, report_to="none", beta=BETA, learning_rate=RATE,
                     lr_scheduler_type="constant", adam_beta2=0.95, max_steps=STEPS, logging_steps=1, save_strategy="no",
                     per_device_train_batch_size=len(rows), precompute_ref_log_probs=True, disable_tqdm=True, max_length=None)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    trainer = DPOTrainer(model, args=args, train_dataset=Dataset.from_list(rows), processing_class=tokenizer)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    cut = lambda ids: ids[:len(ids) - ids[::-1].index(end)]
    prepared = trainer.train_dataset.map(lambda row: {key: cut(row[key]) for key in ["chosen_ids", "rejected_ids"]})
    prepared = prepared.remove_columns(["ref_chosen_logps", "ref_rejected_logps"])
    trainer.train_dataset = trainer._precompute_ref_logps(prepared, "train", len(rows))
    trainer.train()
    return trainer.state.log_history[:STEPS]


def main():
    binary, folder = sys.argv[1:]
    rows = conversations()
    with tempfile.TemporaryDirectory() as scratch:
        steps = zip(ours(binary, folder, rows, Path(scratch)), theirs(folder, rows, Path(scratch)), strict=True)
        worst = {False: 0.0, True: 0.0}
        for number, (mine, other) in enumerate(steps):
            for key in COMPARED:
                # Rewards of the first step are 0.
                off = abs(mine[key] - float(other[key])) / max(abs(float(other[key])), 0.1)
                worst[number > 0] = max(worst[number > 0], off)
            print(f"step {number + 1}:", ", ".join(f"{key} {mine[key]:.5f} ({float(other[key]):.5f})" for key in COMPARED))
    print(f"DPO, largest difference from TRL: {worst[False]:.1e} in the first step, {worst[True]:.1e} in later ones")
    if not (worst[False] <= TOLERANCE and worst[True] <= LATER):
        sys.exit("not equal")


if __name__ == "__main__":
    main()
