"""Runs the examples of docs/train-elsewhere.md as far as their first batch.

    train_elsewhere.py DOCUMENT TOOL     in a folder with rows-train.jsonl and rows-test.jsonl

A small model with Llama 3's chat template takes the place of Llama. What an example trains must be what the assistant
says in the first rows, with the ends of its turns.
"""

import base64
import json
import os
import pathlib
import re
import sys
import types

os.environ.update(CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1", UNSLOTH_IS_PRESENT="1", WANDB_DISABLED="true")

END = "<|eot_id|>"
HEADER = "<|start_header_id|>assistant<|end_header_id|>"
ROWS = 8


def small_model():
    """A folder with a model of one layer, whose tokens are bytes and Llama 3's special tokens."""
    import trl
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_only = Tokenizer(models.BPE({letter: id for id, letter in enumerate(letters)}, []))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bytes_only, bos_token="<|begin_of_text|>", eos_token=END, pad_token="<|pad|>",
        additional_special_tokens=["<|start_header_id|>", "<|end_header_id|>"])
    tokenizer.chat_template = (pathlib.Path(trl.__file__).parent / "chat_templates/llama3.jinja").read_text()
    tokenizer.save_pretrained("small")
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **size)).save_pretrained("small")
    return "small"


def trained_by(trainer):
    """What a trainer of transformers trains in each of the first rows, as text."""
    for batch in (trainer.data_collator([trainer.train_dataset[row]]) for row in range(ROWS)):
        yield trainer.processing_class.decode([token for token in batch["labels"][0].tolist() if token != -100])


def run(block):
    """Runs an example without its training, and returns its trainer."""
    assert "\ntrainer.train()" in block
    names = {}
    exec(block.replace("\ntrainer.train()", "").replace("SFTConfig(", "SFTConfig(use_cpu=True, bf16=False, "), names)
    return names["trainer"]


def trl(block):
    return trained_by(run(re.sub('model=".*"', f'model="{small_model()}"', block)))


def unsloth(block):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    class FastLanguageModel:
        """On a machine without a GPU."""

        def from_pretrained(name, **_):
            return AutoModelForCausalLM.from_pretrained(small_model()), AutoTokenizer.from_pretrained("small")

        def get_peft_model(model, **_):
            return model

    from unsloth_zoo.dataset_utils import train_on_responses_only

    sys.modules["unsloth"] = types.SimpleNamespace(FastLanguageModel=FastLanguageModel)
    sys.modules["unsloth.chat_templates"] = types.SimpleNamespace(train_on_responses_only=train_on_responses_only)
    return trained_by(run(block))


def axolotl(block):
    import yaml
    from axolotl.prompt_strategies.chat_template import load
    from axolotl.utils.dict import DictDefault
    from datasets import load_dataset
    from transformers import AutoTokenizer

    config = DictDefault(yaml.safe_load(block))
    for entry in config.test_datasets + config.datasets:
        tokenizer = AutoTokenizer.from_pretrained(small_model())
        strategy = load(tokenizer, config, dict(entry))
        rows = load_dataset("json", data_files=entry.path, split="train")
    for row in rows.select(range(ROWS)):
        labels = strategy.tokenize_prompt(row)["labels"]
        yield tokenizer.decode([token for token in labels if token != -100])


def torchtune(block):
    from omegaconf import OmegaConf
    from torchtune import config

    lines = (f"{base64.b64encode(bytes([byte])).decode()} {byte}\n" for byte in range(256))
    pathlib.Path("tokenizer.model").write_text("".join(lines))
    example = OmegaConf.create(block)
    tokenizer = config.instantiate(example.tokenizer)
    rows = config.instantiate(example.dataset, tokenizer)
    for row in range(ROWS):
        tokens = [token for token in rows[row]["labels"] if token != -100]
        yield tokenizer.decode(tokens, skip_special_tokens=False)


def spoken(row):
    """What the assistant says. Llama 3's template trims it."""
    said = [message["content"].strip() for message in row["messages"] if message["role"] == "assistant"]
    return [*said, ""]


def main(document, tool):
    section = pathlib.Path(document).read_text().split(f"\n## {tool}\n")[1]
    block = re.search("```(?:python|yaml)\n(.*?)```", section, re.DOTALL)[1]
    rows = [json.loads(line) for line in open("rows-train.jsonl")]
    assert len(rows) >= ROWS
    count = 0
    for row, text in zip(rows, globals()[tool.lower()](block)):
        turns = [turn.replace(HEADER, "").strip() for turn in text.split(END)]
        assert turns == spoken(row), (turns, spoken(row))
        count += 1
    print(f"{tool}: {count} rows")


if __name__ == "__main__":
    main(*sys.argv[1:])
