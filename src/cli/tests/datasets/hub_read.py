"""Reads a dataset repository as its users do, and prints what they get as JSON."""

import json
import os
import sys

import yaml
from datasets import Features, load_dataset
from huggingface_hub import HfApi, snapshot_download
from pyarrow import parquet

repo = sys.argv[1]
api = HfApi()
splits = load_dataset(repo)
rows = {
    name: [
        {
            "trajectory_id": row["trajectory_id"],
            "query": row["query"],
            "messages": row["messages"],
            "row": row["proof"]["row"],
        }
        for row in split
    ]
    for name, split in splits.items()
}

# The whole repository as files, and what the listing says of each.
folder = snapshot_download(repo, repo_type="dataset")
files = {}
for entry in api.list_repo_tree(repo, repo_type="dataset", recursive=True):
    if hasattr(entry, "blob_id"):
        size = os.path.getsize(os.path.join(folder, entry.path))
        assert size == entry.size, entry
        files[entry.path] = size

# The features that the card states are those of the shards.
with open(os.path.join(folder, "README.md"), encoding="utf-8") as card:
    header = yaml.safe_load(card.read().split("---\n")[1])
shards = sorted(name for name in files if name.startswith("data/"))
shard = parquet.read_schema(os.path.join(folder, shards[0]))
stated = Features._from_yaml_list(header["dataset_info"]["features"])
same = stated == Features.from_arrow_schema(shard)

json.dump({"rows": rows, "files": files, "features": same}, sys.stdout, ensure_ascii=False)
