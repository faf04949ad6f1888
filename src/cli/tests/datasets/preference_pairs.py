"""Loads preference pairs with TRL's `DPOTrainer`, as far as its first batch.

    preference_pairs.py FILE     in an empty folder

Prints a JSON list with what is trained as the chosen and as the rejected reply of the first pair.
"""

import json
import sys

from train_elsewhere import small_model


def main(file):
    from datasets import load_dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import DPOConfig, DPOTrainer

    model = AutoModelForCausalLM.from_pretrained(small_model())
    tokenizer = AutoTokenizer.from_pretrained("small")
    trainer = DPOTrainer(
        model, args=DPOConfig("out", use_cpu=True, bf16=False, report_to="none", max_length=None),
        train_dataset=load_dataset("json", data_files=file, split="train"), processing_class=tokenizer)
    batch = trainer.data_collator([trainer.train_dataset[0]])
    completions = zip(batch["input_ids"], batch["completion_mask"])
    print(json.dumps([tokenizer.decode(tokens[mask == 1]) for tokens, mask in completions]))


main(*sys.argv[1:])
