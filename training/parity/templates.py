"""Renders conversations with the chat templates of a folder as transformers and vLLM do, for comparison.

    python training/parity/templates.py FOLDER > expected.jsonl
"""
import datetime
import json
import sys
from pathlib import Path

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

sys.path.insert(0, str(Path(__file__).parent))
from conversations import CONVERSATIONS, TOOL_CONVERSATIONS  # noqa: E402

# The date of our renderer.
DATE = datetime.datetime(2024, 7, 26)

MORE = [
    [{"role": "system", "content": " be brief \n"}, {"role": "user", "content": " \n a\n\n"}],
    [{"role": "system", "content": "one"}, {"role": "user", "content": "a"}, {"role": "system", "content": "two"}],
    [{"role": "meta-day", "content": " Monday "}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    [{"role": "user", "content": "{{ 1 + 1 }} {% raw %} <&> '\" \u00a0x\u3000"}],
]


class Generation(Extension):
    """transformers' `{% generation %}`, which marks what the assistant writes."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("same"), [], [], body).set_lineno(line)

    def same(self, caller):
        return caller()


def environment():
    """As `transformers.utils.chat_template_utils` makes it."""

    def raise_exception(message):
        raise ValueError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = DATE.strftime
    return made


def main():
    chats = [(messages, None) for messages in [*CONVERSATIONS, *MORE]] + TOOL_CONVERSATIONS
    for path in sorted(Path(sys.argv[1]).glob("*.jinja")):
        template = environment().from_string(path.read_text())
        for messages, tools in chats:
            for prompt in (False, True):
                try:
                    text = template.render(
                        messages=messages, bos_token="<s>", eos_token="</s>",
                        add_generation_prompt=prompt, tools=tools, documents=None,
                    )
                except Exception:  # a template that refuses: so must ours
                    text = None
                line = {"template": path.name, "messages": messages, "tools": tools, "prompt": prompt, "text": text}
                print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    main()
