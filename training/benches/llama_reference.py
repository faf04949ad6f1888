"""What `just bench llama` compares with: losses in float32 and by transformers in bf16, and first tokens of llama.cpp.

    python training/benches/llama_reference.py float32 MODEL_DIR TEXTS FIRST
    python training/benches/llama_reference.py transformers MODEL_DIR TEXTS
    python training/benches/llama_reference.py llamacpp GGUF TEXTS FIRST

TEXTS has lines as `pybench-train tokens` prints them: ids, and which of them are trained. Printed is a JSON list of the
losses, nats per trained token. In float32 the model is computed by transformers' own blocks, one at a time, so that it
needs the memory of one block and of the output matrix; FIRST becomes a safetensors file with the logits of the first
trained token of each text. `llamacpp` asks for that token and prints how many are the likeliest by FIRST, and by how much
the logits of others are below.
"""
import json
import os
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRMSNorm, LlamaRotaryEmbedding

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "parity"))


class Weights:
    """The tensors of a model directory, which stay in their files until they are asked for."""

    def __init__(self, folder):
        index = Path(folder, "model.safetensors.index.json")
        names = set(json.loads(index.read_text())["weight_map"].values()) if index.exists() else ["model.safetensors"]
        files = [safe_open(Path(folder, name), framework="pt") for name in names]
        self.files = {tensor: file for file in files for tensor in file.keys()}

    def __call__(self, name):
        return self.files[name].get_tensor(name)

    def module(self, module, prefix):
        """Fills a module with the tensors below a prefix, in float32."""
        state = {name: self(f"{prefix}.{name}").float() for name in module.state_dict()}
        module.load_state_dict(state)
        return module


def read_texts(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def loss(logits, text):
    """Nats per trained token. In float64, because float32 sums over a whole vocabulary are too inexact."""
    trained = torch.tensor(text["trained"][1:])
    targets = torch.tensor(text["ids"][1:])[trained]
    return torch.nn.functional.cross_entropy(logits[:-1][trained].double(), targets).item()


def float32(folder, texts):
    """The logits of each text."""
    config, weights = AutoConfig.from_pretrained(folder, attn_implementation="sdpa"), Weights(folder)
    table, rotary = weights("model.embed_tokens.weight"), LlamaRotaryEmbedding(config)
    states = [table[torch.tensor([text["ids"]])].float() for text in texts]
    angles = [rotary(state, torch.arange(state.shape[1])[None]) for state in states]
    for layer in range(config.num_hidden_layers):
        with torch.device("meta"):
            block = LlamaDecoderLayer(config, layer)
        block = weights.module(block.to_empty(device="cpu"), f"model.layers.{layer}")
        states = [block(state, position_embeddings=pair) for state, pair in zip(states, angles)]
        print(f"float32: block {layer + 1} of {config.num_hidden_layers}", file=sys.stderr, end="\r", flush=True)
    print(file=sys.stderr)
    norm = weights.module(LlamaRMSNorm(config.hidden_size, config.rms_norm_eps), "model.norm")
    head = table if config.tie_word_embeddings else weights("lm_head.weight")
    head = head.float()
    for state in states:
        yield norm(state)[0] @ head.T


def transformers(folder, texts):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, attn_implementation="sdpa")
    for text in texts:
        yield model(torch.tensor([text["ids"]])).logits[0]


def prompt(text):
    """The tokens before the first that is trained."""
    return text["ids"][: text["trained"].index(True)]


def losses(of_model, texts, first=None):
    found, kept = [], {}
    for number, (text, logits) in enumerate(zip(texts, of_model, strict=True)):
        found.append(loss(logits, text))
        kept[str(number)] = logits[len(prompt(text)) - 1].clone()
    if first:
        save_file(kept, first)
    return found


def llamacpp(path, texts, first):
    from llamacpp import complete, places, server

    llama, logits = server(path, int(os.environ["OMP_NUM_THREADS"])), load_file(first)
    below = []
    for number, text in enumerate(texts):
        [(token, _)] = places(complete(llama, prompt(text), 1, 1, ignore_eos=False))
        below.append((logits[str(number)].max() - logits[str(number)][token]).item())
    return {"texts": len(texts), "same": below.count(0.0), "farthest": max(below)}


def main():
    kind, model, texts, *first = sys.argv[1:]
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    texts = read_texts(texts)
    with torch.no_grad():
        match kind:
            case "float32":
                answer = losses(float32(model, texts), texts, *first)
            case "transformers":
                answer = losses(transformers(model, texts), texts)
            case "llamacpp":
                answer = llamacpp(model, texts, *first)
            case other:
                sys.exit(f"there is no {other}: float32, transformers or llamacpp")
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
