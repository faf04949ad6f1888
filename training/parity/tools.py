"""Compares conversations with tools with transformers, in the chat templates that TRL and llama.cpp carry and in Llama
3.1's own.

    python training/parity/tools.py PYBENCH_TRAIN LLAMA_MODELS LDP LLAMA_CPP

LLAMA_MODELS and LDP are folders with the unpacked packages `llama-models` 0.3.0 (the tokenizer of Llama 3) and `ldp`
0.43.0 (Llama 3.1's template as the Hub has it), LLAMA_CPP has the source of llama.cpp. Tokens must be transformers'. A
conversation may be refused only where the template leaves out its calls. TRL's templates for training mark what it
trains: our mask is compared with that.
"""
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import tiktoken
from tiktoken.load import load_tiktoken_bpe
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils
from transformers.convert_slow_tokenizer import TikTokenConverter

sys.path.insert(0, str(Path(__file__).parent))
from conversations import CONVERSATIONS, MORE_TOOL_CONVERSATIONS, TOOL_CONVERSATIONS  # noqa: E402
from templates import DATE  # noqa: E402

PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTROL = re.compile(r"<\|[\w:]+\|>|<｜[^｜\s]+｜>|\[/?[A-Z_]{3,}\]|</?s>|<(?:start|end)_of_turn>")
# What the trainer can train, and what is written like it.
FAMILIES = ["llama3", "qwen2_5", "qwen3", "phi3", "gemma3", "glm4"]
# Of llama.cpp's. SmolLM3's is Unsloth's edition, which writes neither tools nor calls.
LLAMA_CPP = [
    "meta-llama-Llama-3.2-3B-Instruct",
    "meta-llama-Llama-3.3-70B-Instruct",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
    "HuggingFaceTB-SmolLM3-3B",
]
NAMED = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"]


def base_tokenizer(folder):
    """The tokenizer of Llama 3 without its control tokens."""
    path = str(folder / "llama_models/llama3/tokenizer.model")
    converter = TikTokenConverter(path, pattern=PATTERN)
    converter.extra_special_tokens = []
    core = converter.converted()
    core.post_processor = None
    return core, tiktoken.Encoding("llama3", pat_str=PATTERN, mergeable_ranks=load_tiktoken_bpe(path), special_tokens={})


def templates(ldp, llama_cpp):
    trl = Path(importlib.util.find_spec("trl").origin).parent / "chat_templates"
    own = ldp / "ldp/nn/chat_templates/llama3.1_chat_template_hf.jinja"
    known = [path for family in FAMILIES for path in sorted(trl.glob(f"{family}*.jinja"))]
    return [own, *known, *(llama_cpp / f"models/templates/{name}.jinja" for name in LLAMA_CPP)]


def tokenizer_of(core, source):
    core = type(core).from_str(core.to_str())
    special = [*NAMED, *sorted(set(CONTROL.findall(source)) - set(NAMED))]
    core.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    eos = "</s>" if "</s>" in special else "<|eot_id|>"
    return PreTrainedTokenizerFast(tokenizer_object=core, bos_token="<|begin_of_text|>", eos_token=eos, chat_template=source)


def control_tokens(tokenizer):
    return [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]


def chats(special):
    """Without text that spells a control token: transformers obeys it, and we do not."""
    for chat in [(messages, None) for messages in CONVERSATIONS] + TOOL_CONVERSATIONS + MORE_TOOL_CONVERSATIONS:
        text = json.dumps(chat, ensure_ascii=False)
        for token in special:
            text = text.replace(token, "")
        yield json.loads(text)


def ours(binary, folder, chats):
    """One result per conversation; `None` where our renderer refuses."""
    data = folder / "chats.jsonl"
    data.write_text("".join(json.dumps({"messages": m, "tools": tools}) + "\n" for m, tools in chats))
    done = subprocess.run([binary, "tokens", folder, data], capture_output=True, text=True)
    if done.returncode == 0:
        return [json.loads(line) for line in done.stdout.splitlines()]
    half = len(chats) // 2
    return ours(binary, folder, chats[:half]) + ours(binary, folder, chats[half:]) if half else [None]


def theirs(tokenizer, messages, tools, mask):
    try:
        return tokenizer.apply_chat_template(
            messages, tools=tools, return_dict=True, return_assistant_tokens_mask=mask
        )
    except Exception:  # a template that refuses
        return None


def leaves_out_calls(tokenizer, messages, tools):
    without = [{key: value for key, value in message.items() if key != "tool_calls"} for message in messages]
    texts = [tokenizer.apply_chat_template(chat, tools=tools, tokenize=False) for chat in (messages, without)]
    return texts[0] == texts[1]


class Today(type(DATE)):
    """The clock of the templates."""

    @classmethod
    def now(cls, tz=None):
        return DATE


def same_mask(tokenizer, ids, ours, theirs):
    """TRL also trains the ends of lines around a reply, which the prompt has or which no model has to write.

    `other_masks` of Qwen 3.5 and later: TRL trains the thought that their generation prompts contain already."""
    more = [one for one, mine, wanted in zip(ids, ours, theirs) if wanted and not mine]
    missing = any(mine and not wanted for mine, wanted in zip(ours, theirs))
    return not missing and not tokenizer.decode(more).strip()


def compare(binary, name, tokenizer, scratch):
    tokenizer.save_pretrained(scratch)
    (scratch / "config.json").write_text("{}")
    mask = name.endswith("_training")
    counts = dict(equal=0, with_tools=0, different=0, refused=0, wrongly_refused=0, masks=0, other_masks=0)
    asked = [(chat, theirs(tokenizer, *chat, mask)) for chat in chats(control_tokens(tokenizer))]
    asked = [(chat, wanted) for chat, wanted in asked if wanted is not None]
    for found, (chat, wanted) in zip(ours(binary, scratch, [chat for chat, _ in asked]), asked):
        if found is None:
            counts["refused" if leaves_out_calls(tokenizer, *chat) else "wrongly_refused"] += 1
            continue
        same = found["ids"] == wanted["input_ids"]
        counts["equal" if same else "different"] += 1
        counts["with_tools"] += same and bool(chat[1])
        if mask:
            same = same_mask(tokenizer, found["ids"], found["trained"], wanted["assistant_masks"])
            counts["masks" if same else "other_masks"] += 1
    print(f"{name}: " + ", ".join(f"{count} {what}" for what, count in counts.items() if count))
    return counts["equal"] > 0 and counts["different"] == counts["wrongly_refused"] == 0


def main():
    binary, llama_models, ldp, llama_cpp = sys.argv[1:]
    core, reference = base_tokenizer(Path(llama_models))
    for text in [m["content"] for c in CONVERSATIONS for m in c]:
        assert core.encode(text, add_special_tokens=False).ids == reference.encode(text, disallowed_special=()), text
    chat_template_utils.datetime = Today
    good = True
    for path in templates(Path(ldp), Path(llama_cpp)):
        source = path.read_text()
        with tempfile.TemporaryDirectory() as scratch:
            good &= compare(binary, path.stem, tokenizer_of(core, source), Path(scratch))
    if not good:
        sys.exit("not equal")


if __name__ == "__main__":
    main()
