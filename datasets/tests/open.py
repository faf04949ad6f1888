"""Opens a dataset as a user would and prints what it holds as JSON, one split after another, and what its card states."""

import json
import sys

from datasets import load_dataset, load_dataset_builder

splits = load_dataset(sys.argv[1])
card = load_dataset_builder(sys.argv[1]).info
report = {}
for name, rows in splits.items():
    split = card.splits[name]
    stated = {
        "num_examples": split.num_examples,
        "num_bytes": split.num_bytes,
        "same_features": card.features == rows.features,
    }
    report[name] = {"columns": rows.column_names, "rows": list(rows), "stated": stated}
json.dump(report, sys.stdout, ensure_ascii=False)
