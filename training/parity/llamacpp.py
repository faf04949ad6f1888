"""Compares GGUF exports in llama.cpp with our own model.

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
# Distributions are compared after every so many tokens.
EVERY = 8


def server(path, threads=1):
    """One thread by default: on a busy machine ggml's threads spin while they wait for each other."""
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.n_ctx = 512
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.warmup = False
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    # Keys and values in float32, so that only the weights' rounding is compared.
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    return xllamacpp.Server(params)


def complete(llama, prompt, count, alternatives, ignore_eos=True):
    answer = llama.handle_completions(
        {"prompt": prompt, "max_tokens": count, "n_predict": count, "temperature": 0.0, "top_k": 1, "logprobs": alternatives, "n_probs": alternatives,
         "cache_prompt": True, "ignore_eos": ignore_eos, "return_tokens": True}
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


def greedy_agrees(logits, prompt, theirs):
    """Whether llama.cpp's tokens are our likeliest, up to the first tie."""
    for place, token in enumerate(theirs):
        top = logits[prompt + place - 1].topk(2)
        if top.indices[0].item() != token:
            gap = (top.values[0] - top.values[1]).item()
            print(f"f16: {place} greedy tokens of llama.cpp are ours; then our two likeliest are {gap:.4f} apart")
            return gap <= TIE and top.indices[1].item() == token
    print(f"f16: all {len(theirs)} greedy tokens of llama.cpp are ours")
    return True


def divergence(llama, logits, prompt, whole):
    """Of llama.cpp's distributions from ours after some of the tokens that were generated."""
    found = []
    for place in range(prompt, len(whole), EVERY):
        [(_, likely)] = places(complete(llama, whole[:place], 1, logits.shape[1]))
        theirs = torch.full([logits.shape[1]], -100.0, dtype=torch.double)
        theirs[list(likely)] = torch.tensor(list(likely.values()), dtype=torch.double)
        ours, theirs = logits[place - 1].double().log_softmax(-1), theirs.log_softmax(-1)
        found.append((ours.exp() * (ours - theirs)).sum().item())
    return sum(found) / len(found), len(found)


def main():
    binary, folder = sys.argv[1:]
    ids = Tokenizer.from_file(str(Path(folder, "tokenizer.json"))).encode(PROMPT).ids
    agrees, logits, whole = False, None, None
    with tempfile.TemporaryDirectory() as scratch:
        for kind in ("f16", "q8_0"):
            file = Path(scratch, f"{kind}.gguf")
            subprocess.run([binary, "export", folder, "--gguf", file, "--type", kind], check=True)
            print(f"{kind}: {file.stat().st_size / 2**20:.0f} MiB")
            llama = server(file)
            if kind == "f16":
                text = [token for token, _ in places(complete(llama, ids, TOKENS, 1))]
                whole = ids + text
                logits = probe(binary, folder, whole)
                agrees = greedy_agrees(logits, len(ids), text)
            nats, count = divergence(llama, logits, len(ids), whole)
            print(f"{kind}: mean KL divergence from our float32 {nats:.2e} nats over {count} places", flush=True)
    if not agrees:
        sys.exit("not equal")


if __name__ == "__main__":
    main()
