"""Has llama.cpp read what `export --gguf` writes, and compares it with our own model.

    python training/parity/llamacpp.py PYBENCH_TRAIN MODEL_DIR

f16: greedy tokens must be ours up to the first tie (our two likeliest within 0.01). q8_0: the mean
Kullback-Leibler divergence of its distribution from ours, over the same tokens, in nats.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import xllamacpp
from safetensors.torch import load_file
from tokenizers import Tokenizer

PROMPT = "The three most common ways to plot a table of sales by region in Python are"
TOKENS = 48
TIE = 0.01


def server(path):
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = 512
    params.n_parallel = 1
    # One thread: on a busy machine ggml's wait for each other, spinning.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    # Keys and values in float32, so that only the weights' rounding is compared.
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    return xllamacpp.Server(params)


def complete(llama, prompt, count, alternatives):
    answer = llama.handle_completions(
        {"prompt": prompt, "max_tokens": count, "n_predict": count, "temperature": 0.0, "top_k": 1, "logprobs": alternatives, "n_probs": alternatives,
         "cache_prompt": True, "ignore_eos": True, "return_tokens": True}
    )
    return answer if isinstance(answer, dict) else json.loads(answer)


def places(answer):
    """For each generated token: its number and log-probabilities by token."""
    found = answer.get("completion_probabilities") or answer["choices"][0]["logprobs"]["content"]
    return [(one["id"], {top["id"]: top["logprob"] for top in one["top_logprobs"]}) for one in found]


def probe(binary, folder, ids):
    """Our logits after each of these tokens, `[tokens, vocab]`."""
    with tempfile.TemporaryDirectory() as scratch:
        request, answer = Path(scratch, "request.json"), Path(scratch, "answer.safetensors")
        request.write_text(json.dumps({"ids": ids, "weights": [1.0] * len(ids)}))
        subprocess.run([binary, "probe", folder, request, answer], check=True)
        return load_file(answer)["logits"][0]


def greedy_agrees(path, binary, folder, ids):
    theirs = [token for token, _ in places(complete(server(path), ids, TOKENS, 1))]
    logits = probe(binary, folder, ids + theirs)
    for place, token in enumerate(theirs):
        top = logits[len(ids) + place - 1].topk(2)
        if top.indices[0].item() != token:
            gap = (top.values[0] - top.values[1]).item()
            print(f"f16: {place} greedy tokens of llama.cpp are ours; then our two likeliest are {gap:.4f} apart")
            return gap <= TIE and top.indices[1].item() == token, theirs
    print(f"f16: all {len(theirs)} greedy tokens of llama.cpp are ours")
    return True, theirs


def divergence(path, binary, folder, ids, text):
    """Of llama.cpp's distributions from ours after each of the last tokens."""
    llama = server(path)
    whole = ids + text
    logits = probe(binary, folder, whole).double().log_softmax(-1)
    total, count = 0.0, 0
    for place in range(len(ids), len(whole), 6):
        [(_, found)] = places(complete(llama, whole[:place], 1, logits.shape[1]))
        theirs = torch.full_like(logits[0], -100.0)
        theirs[list(found)] = torch.tensor(list(found.values()), dtype=torch.double)
        ours = logits[place - 1]
        total += (ours.exp() * (ours - theirs)).sum().item()
        count += 1
    return total / count, count


def main():
    binary, folder = sys.argv[1:]
    ids = Tokenizer.from_file(str(Path(folder, "tokenizer.json"))).encode(PROMPT).ids
    with tempfile.TemporaryDirectory() as scratch:
        files = {}
        for kind in ("f16", "q8_0"):
            files[kind] = Path(scratch, f"{kind}.gguf")
            subprocess.run([binary, "export", folder, "--gguf", files[kind], "--type", kind], check=True)
            print(f"{kind}: {files[kind].stat().st_size / 2**20:.0f} MiB")
        agrees, text = greedy_agrees(files["f16"], binary, folder, ids)
        for kind, path in files.items():
            nats, count = divergence(path, binary, folder, ids, text)
            print(f"{kind}: mean KL divergence from our float32 {nats:.2e} nats over {count} places")
    if not agrees:
        sys.exit("not equal")


if __name__ == "__main__":
    main()
