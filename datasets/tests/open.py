"""Opens a dataset as a user would and prints what it holds as JSON, one split after another."""

import json
import sys

from datasets import load_dataset

splits = load_dataset(sys.argv[1])
report = {}
for name, rows in splits.items():
    report[name] = {"columns": rows.column_names, "rows": list(rows)}
json.dump(report, sys.stdout, ensure_ascii=False)
