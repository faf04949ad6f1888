"""Times TRL's own data preparation (tokenize, mask, pack) of conversations; `just bench render` runs it.

    python training/parity/prepare.py MODEL_DIR DATA.parquet CONTEXT PROCESSES

Prints one line of JSON: seconds, rows, packed rows, trained tokens.
"""
import json
import sys
import tempfile
import time

import datasets
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig
from trl import SFTConfig, SFTTrainer

from sft import IGNORED, marked


def main():
    folder, data, context, processes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as scratch:
        shards = datasets.load_dataset("parquet", data_files=data, split="train", cache_dir=scratch)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        tokenizer.chat_template = marked(tokenizer, shards["messages"][:32])
        tiny = LlamaConfig(vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                           num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=65536)
        model = AutoModelForCausalLM.from_config(tiny)
        args = SFTConfig(output_dir=scratch, max_length=context, assistant_only_loss=True, packing=True,
                         packing_strategy="bfd", padding_free=True, dataset_num_proc=processes, report_to="none",
                         use_cpu=True, bf16=False, save_strategy="no")
        # Building the trainer is preparing the data; the model is too small to count.
        started = time.monotonic()
        trainer = SFTTrainer(model, args=args, train_dataset=shards, processing_class=tokenizer)
        seconds = time.monotonic() - started
        packed = trainer.train_dataset
        trained = sum(label != IGNORED for labels in packed["labels"] for label in labels)
    print(json.dumps({"seconds": seconds, "rows": len(shards), "packed": len(packed), "trained": trained}))


if __name__ == "__main__":
    main()
