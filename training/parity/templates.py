"""Renders conversations with the chat templates of a folder as transformers and vLLM do, for comparison.

    python training/parity/templates.py FOLDER > expected.jsonl
"""
import json
import sys
from pathlib import Path

from jinja2.sandbox import ImmutableSandboxedEnvironment

sys.path.insert(0, str(Path(__file__).parent))
from conversations import CONVERSATIONS  # noqa: E402

MORE = [
    [{"role": "system", "content": " be brief \n"}, {"role": "user", "content": " \n a\n\n"}],
    [{"role": "system", "content": "one"}, {"role": "user", "content": "a"}, {"role": "system", "content": "two"}],
    [{"role": "meta-day", "content": " Monday "}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
    [{"role": "user", "content": "{{ 1 + 1 }} {% raw %} <&> '\" \u00a0x\u3000"}],
]


def environment():
    def raise_exception(message):
        raise ValueError(message)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    made.globals["raise_exception"] = raise_exception
    return made


def main():
    for path in sorted(Path(sys.argv[1]).glob("*.jinja")):
        template = environment().from_string(path.read_text())
        for messages in [*CONVERSATIONS, *MORE]:
            for prompt in (False, True):
                try:
                    text = template.render(
                        messages=messages, bos_token="<s>", eos_token="</s>",
                        add_generation_prompt=prompt, tools=None, documents=None,
                    )
                except Exception:  # a template that refuses: so must ours
                    text = None
                line = {"template": path.name, "messages": messages, "prompt": prompt, "text": text}
                print(json.dumps(line, ensure_ascii=False))


if __name__ == "__main__":
    main()
