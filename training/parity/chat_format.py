"""Compares conversations with Llama 3.1's built-in code interpreter with Meta's `ChatFormat`, in both directions.

    python training/parity/chat_format.py PYBENCH_TRAIN LLAMA_MODELS
    python training/parity/chat_format.py --record LLAMA_MODELS training/tests/data/templates/code_interpreter

LLAMA_MODELS is a folder with the unpacked package `llama-models` 0.3.0. Tokens must be Meta's, and the trained ones those
of replies; Meta's parser must find the code again. `--record` writes what `ChatFormat` gives with a small tokenizer, for
tests.
"""
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, pre_tokenizers
from transformers.convert_slow_tokenizer import TikTokenConverter

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from conversations import CONVERSATIONS, INTERPRETER_CONVERSATIONS  # noqa: E402

TAG = "<|python_tag|>"
TEMPLATE = HERE.parent / "recipes/templates/code_interpreter.jinja"
CONTROLS = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", TAG, "<|image|>"]


class Reference:
    """Meta's format over any tokenizer with the control tokens of Llama 3."""

    def __init__(self, tokenizer):
        from llama_models.datatypes import BuiltinTool, RawMessage, StopReason, ToolCall
        from llama_models.llama3.chat_format import ChatFormat

        self.interpreter, self.message, self.call, self.stop = BuiltinTool.code_interpreter, RawMessage, ToolCall, StopReason
        self.tokenizer, self.format = tokenizer, ChatFormat(tokenizer)

    def raw(self, message):
        role, content = message["role"], message["content"]
        if role != "assistant":
            return self.message(role=role, content=content)
        if not content.startswith(TAG):
            return self.message(role=role, content=content, stop_reason=self.stop.end_of_turn)
        call = self.call(call_id="a", tool_name=self.interpreter, arguments={"code": content.removeprefix(TAG)})
        return self.message(role=role, content="", tool_calls=[call], stop_reason=self.stop.end_of_message)

    def encode(self, messages):
        """The tokens, which of them the model writes, and the tokens of each reply."""
        ids, trained, replies = [self.tokenizer.special_tokens["<|begin_of_text|>"]], [False], []
        for message in messages:
            tokens, _ = self.format.encode_message(self.raw(message), None)
            header = len(self.format._encode_header(message["role"]))
            ids += tokens
            trained += [message["role"] == "assistant" and at >= header for at in range(len(tokens))]
            if message["role"] == "assistant":
                replies.append((message["content"], tokens[header:]))
        return ids, trained, replies

    def reads(self, content, tokens):
        """Whether Meta's parser finds the same text or code in a reply."""
        found = self.format.decode_assistant_message(tokens, self.stop.end_of_turn)
        if not content.startswith(TAG):
            return found.content == content.lstrip(" ") and not found.tool_calls
        call, = found.tool_calls
        same = call.tool_name == self.interpreter and call.arguments["code"] == content.removeprefix(TAG)
        return same and found.stop_reason == self.stop.end_of_message


class Wrapped:
    """A tokenizer of `tokenizers` with the interface of Meta's."""

    def __init__(self, core):
        self.core = core
        self.special_tokens = {text: core.token_to_id(text) for text in CONTROLS}
        self.plain = Tokenizer.from_str(core.to_str())
        self.plain.encode_special_tokens = True

    def encode(self, text, *, bos, eos):
        return self.plain.encode(text, add_special_tokens=False).ids

    def decode(self, ids):
        return self.core.decode(ids, skip_special_tokens=False)


def conversations():
    """Meta tokenizes the two line ends of a header alone, and we, like transformers, with the white space that follows:
    conversations with a message that starts with line ends are left out."""
    return filter(comparable, CONVERSATIONS + INTERPRETER_CONVERSATIONS)


def comparable(messages):
    starts = (m["content"][: len(m["content"]) - len(m["content"].lstrip())] for m in messages)
    return not any("\n" in start or "\r" in start for start in starts)


def random_conversations(count):
    """Conversations of hard pieces, with a fixed seed."""
    pieces = [*CONTROLS, "<|python_", "tag|>", "<|", "|>", " ", "   ", "\n", "\n\n", "\r\n", "\t", "x = 1", "print('a')", "# b", "平均", "👩‍🔬", "e\u0301", "\u00a0", "\u2028", "1234567", "'s", "ipython", "[stdout]"]
    rng = random.Random(1)
    text = lambda: "".join(rng.choices(pieces, k=rng.randrange(8)))
    for _ in range(count):
        messages = [dict(role=rng.choice(["system", "user"]), content=text())]
        for _ in range(rng.randrange(1, 6)):
            messages.append(dict(role="assistant", content=rng.choice(["", TAG]) + text()))
            messages.append(dict(role=rng.choice(["tool", "user"]), content=text()))
        yield messages


def save(core, folder):
    core.save(str(folder / "tokenizer.json"), pretty=False)
    config = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")
    (folder / "tokenizer_config.json").write_text(json.dumps(config) + "\n")


def with_controls(core, pattern):
    core.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROLS])
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    core.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    core.post_processor = None
    return core


def record(folder):
    from llama_models.llama3.tokenizer import Tokenizer as Meta

    folder.mkdir(parents=True, exist_ok=True)
    core = with_controls(Tokenizer.from_file(str(folder.parent / "llama3/tokenizer.json")), Meta.pat_str)
    save(core, folder)
    reference, lines = Reference(Wrapped(core)), []
    for messages in conversations():
        ids, trained, _ = reference.encode(messages)
        lines.append(json.dumps(dict(messages=messages, ids=ids, trained=trained), ensure_ascii=False))
    (folder / "expected.jsonl").write_text("\n".join(lines) + "\n")


def unambiguous(reply):
    """Meta's parser works on text: it obeys a tag or a header that a text spells after spaces."""
    content, _ = reply
    return content.startswith(TAG) or not content.lstrip(" ").startswith((TAG, "<|start_header_id|>"))


def ours(binary, folder, chats):
    (folder / "config.json").write_text("{}")
    (folder / "chat_template.jinja").write_text(TEMPLATE.read_text())
    data = folder / "chats.jsonl"
    data.write_text("".join(json.dumps({"messages": messages}) + "\n" for messages in chats))
    done = subprocess.run([binary, "tokens", folder, data], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def compare(binary):
    from llama_models.llama3.tokenizer import Tokenizer as Meta

    meta = Meta.get_instance()
    reference = Reference(meta)
    path = str(Path(sys.modules[Meta.__module__].__file__).parent / "tokenizer.model")
    converter = TikTokenConverter(path, pattern=meta.pat_str)
    converter.extra_special_tokens = sorted(meta.special_tokens, key=meta.special_tokens.get)
    core = converter.converted()
    core.post_processor = None
    chats = [*conversations(), *filter(comparable, random_conversations(1000))]
    with tempfile.TemporaryDirectory() as scratch:
        save(core, Path(scratch))
        found = ours(binary, Path(scratch), chats)
    counts = dict(equal=0, different=0, replies=0, misread=0)
    for messages, mine in zip(chats, found, strict=True):
        ids, trained, replies = reference.encode(messages)
        same = (mine["ids"], mine["trained"]) == (ids, trained)
        counts["equal" if same else "different"] += 1
        for reply in filter(unambiguous, replies):
            counts["replies" if reference.reads(*reply) else "misread"] += 1
        if not same:
            print("different:", json.dumps(messages, ensure_ascii=False))
    print("code_interpreter and ChatFormat: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    return counts["different"] == counts["misread"] == 0


def main():
    recording = sys.argv[1] == "--record"
    sys.path.insert(0, sys.argv[2])
    if recording:
        record(Path(sys.argv[3]))
    elif not compare(sys.argv[1]):
        sys.exit("not equal")


if __name__ == "__main__":
    main()
