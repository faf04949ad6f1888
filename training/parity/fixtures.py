"""Makes what transformers and TRL compute on tiny random models and hard conversations, for the tests of
`training`. Run with the versions below; the output is committed.

    python training/parity/fixtures.py training/tests/data
"""
import hashlib
import json
import platform
import sys
from pathlib import Path

import tokenizers
import torch
import transformers
import trl
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PreTrainedTokenizerFast, Qwen2Config

from conversations import CONVERSATIONS, TEMPLATES
from dpo import dpo_fixtures

SIZES = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=48, max_position_embeddings=64,
             initializer_range=0.3, attn_implementation="sdpa")
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=16)
MODELS = {
    "llama": LlamaConfig(**SIZES, tie_word_embeddings=True, rope_parameters=LLAMA3),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=False, use_sliding_window=False),
    "mistral": MistralConfig(**SIZES, head_dim=8, sliding_window=5, tie_word_embeddings=False),
}
# Lengths of the documents of each row; `width` pads.
CASES = {
    "plain": dict(width=14, rows=[[14], [14]]),
    "padded": dict(width=14, rows=[[14], [9]]),
    "packed": dict(width=20, rows=[[9, 7, 4], [12, 5]]),
}
IGNORED = -100


def run(model, case, generator):
    """Logits of every place (zero in padding), summed loss over trained targets, gradients of the
    mean. Documents run one by one, which is what packing must be equal to; padded rows run as
    transformers runs them, with an attention mask."""
    width, rows = case["width"], case["rows"]
    ids = torch.randint(1, 48, (len(rows), width), generator=generator)
    weights = (torch.rand(len(rows), width, generator=generator) < 0.6).float()
    logits = torch.zeros(len(rows), width, model.config.vocab_size)
    losses, count = [], 0
    model.zero_grad()
    for row, lengths in enumerate(rows):
        start = 0
        for length in lengths:
            span = slice(start, start + length)
            if len(lengths) == 1:
                mask = (torch.arange(width) < length).long()[None]
                out = model(ids[row][None], attention_mask=mask).logits[0, :length]
            else:
                out = model(ids[row, span][None]).logits[0]
            logits[row, span] = out.detach()
            labels = ids[row, span].clone()
            labels[weights[row, span] == 0] = IGNORED
            losses.append(torch.nn.functional.cross_entropy(out[:-1], labels[1:], ignore_index=IGNORED, reduction="sum"))
            count += (labels[1:] != IGNORED).sum().item()
            start += length
    loss = sum(losses) / count
    loss.backward()
    tensors = {"logits": logits, "loss": loss.detach()[None]}
    for name, parameter in model.named_parameters():
        tensors[f"grad.{name}"] = parameter.grad.clone()
    described = dict(width=width, rows=rows, ids=ids.tolist(), weights=weights.tolist())
    return tensors, described


def model_fixtures(out):
    for name, config in MODELS.items():
        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
        # Norms and biases away from 1 and 0, where mistakes would not show.
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if "norm" in key or key.endswith("bias"):
                    parameter.add_(torch.randn_like(parameter) * 0.2)
        model.save_pretrained(out / name)
        (out / name / "generation_config.json").unlink(missing_ok=True)
        generator = torch.Generator().manual_seed(11)
        expected, described = {}, {}
        for case, shape in CASES.items():
            tensors, described[case] = run(model, shape, generator)
            expected |= {f"{case}.{key}": value.contiguous() for key, value in tensors.items()}
        save_file(expected, out / name / "expected.safetensors")
        (out / name / "cases.json").write_text(json.dumps(described) + "\n")


def tokenizer():
    """A small byte-level BPE of the conversations themselves, with the control tokens of ChatML and
    of Llama 3."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    core.decoder = decoders.ByteLevel()
    texts = [m["content"] for c in CONVERSATIONS for m in c]
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    core.train_from_iterator(texts, trainer)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    return core


def token_fixtures(out):
    core = tokenizer()
    specials = [t.content for t in core.get_added_tokens_decoder().values()]
    for name, (template, bos, eos) in TEMPLATES.items():
        folder = out / "templates" / name
        folder.mkdir(parents=True, exist_ok=True)
        core.save(str(folder / "tokenizer.json"), pretty=False)
        config = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token=bos, eos_token=eos, chat_template=template)
        (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")
        fast = PreTrainedTokenizerFast(tokenizer_object=core, bos_token=bos, eos_token=eos, chat_template=template)
        lines = []
        for messages in CONVERSATIONS:
            text = fast.apply_chat_template(messages, tokenize=False)
            ids = fast.apply_chat_template(messages, tokenize=True, return_dict=False)
            hostile = any(s in m["content"] for m in messages for s in specials)
            lines.append(json.dumps(dict(messages=messages, text=text, ids=ids, hostile=hostile), ensure_ascii=False))
        (folder / "expected.jsonl").write_text("\n".join(lines) + "\n")


def main():
    out = Path(sys.argv[1])
    torch.set_num_threads(1)
    model_fixtures(out)
    token_fixtures(out)
    dpo_fixtures(out)
    files = sorted(p for p in out.rglob("*") if p.is_file() and p.name != "provenance.json")
    provenance = dict(
        script="training/parity/fixtures.py",
        versions=dict(python=platform.python_version(), torch=torch.__version__, transformers=transformers.__version__, trl=trl.__version__, tokenizers=tokenizers.__version__),
        sha256={str(p.relative_to(out)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files},
    )
    (out / "provenance.json").write_text(json.dumps(provenance, indent=1) + "\n")


if __name__ == "__main__":
    main()
