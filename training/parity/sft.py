"""Checks that TRL's SFTTrainer reads our dataset unchanged, and trains the same tokens as we do.

    python training/parity/sft.py PYBENCH_TRAIN MODEL_DIR DATA.parquet
"""
import json
import subprocess
import sys
import tempfile

import datasets
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
from trl import SFTConfig, SFTTrainer

IGNORED = -100


def marked(tokenizer, rows):
    """The tokenizer's ChatML template with the marks that TRL needs to know replies by. It must write
    the same text."""
    body = ("{% for message in messages %}{% if loop.first and message['role'] != 'system' %}DEFAULT{% endif %}"
            "{{ '<|im_start|>' + message['role'] + '\n' }}{% if message['role'] == 'assistant' %}"
            "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
            "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}{% endfor %}")
    render = lambda messages, **how: tokenizer.apply_chat_template(messages, tokenize=False, **how)
    bare = [{"role": "user", "content": "x"}]
    # What the template writes before a conversation without a system message.
    default = render(bare).removesuffix("<|im_start|>user\nx<|im_end|>\n")
    template = body.replace("DEFAULT", "{{ " + json.dumps(default, ensure_ascii=False) + " }}")
    for messages in [bare, *rows]:
        if render(messages) != render(messages, chat_template=template):
            sys.exit(f"{tokenizer.name_or_path}: no ChatML template; this comparison knows no other")
    return template


def theirs(folder, data):
    """Tokens and labels as SFTTrainer hands them to its model, and the loss of a step."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    shards = datasets.load_dataset("parquet", data_files=data, split="train")
    tokenizer.chat_template = marked(tokenizer, shards["messages"])
    # Data preparation does not depend on the model; a tiny one is trained a step.
    tiny = LlamaConfig(vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                       num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=65536)
    with tempfile.TemporaryDirectory() as scratch:
        args = SFTConfig(output_dir=scratch, max_length=None, assistant_only_loss=True, packing=False,
                         per_device_train_batch_size=1, max_steps=1, report_to="none", use_cpu=True,
                         save_strategy="no", bf16=False, logging_steps=1, disable_tqdm=True)
        trainer = SFTTrainer(AutoModelForCausalLM.from_config(tiny), args=args, train_dataset=shards,
                             processing_class=tokenizer)
        loss = trainer.train().training_loss
        rows = []
        for row in trainer.train_dataset:
            batch = trainer.data_collator([row])
            rows.append((batch["input_ids"][0].tolist(), (batch["labels"][0] != IGNORED).tolist()))
    return rows, loss


def main():
    binary, folder, data = sys.argv[1:]
    rows, loss = theirs(folder, data)
    lines = subprocess.run([binary, "tokens", folder, data], check=True, stdout=subprocess.PIPE).stdout
    ours = [json.loads(line) for line in lines.splitlines()]
    same = sum(mine["ids"] == ids and mine["trained"] == trained
               for mine, (ids, trained) in zip(ours, rows, strict=True))
    trained = sum(sum(mine["trained"]) for mine in ours)
    print(f"TRL: {len(rows)} conversations taken as they are (loss of a step {loss:.3f}); "
          f"tokens and mask equal in {same}, {trained} tokens trained")
    if same != len(rows) or trained == 0:
        sys.exit("not equal")


if __name__ == "__main__":
    main()
