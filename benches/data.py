"""What `just bench data` compares with: each phase in a process of its own, one JSON object on stdout.

    python data.py PHASE PLACE ROWS

PLACE has the shards (data/), the texts (texts/, two files) and the benchmark (benchmark/tasks.jsonl) that our side
has written. Settings are ours: zstd 9, 100 rows in a row group, page index; runs of five
tokens, 128 minima, a threshold of 0.8; runs of eight words. What is no part of the work (imports, reading records that
are to be written) is not timed.
"""

import glob
import json
import os
import re
import resource
import shutil
import sys
import tempfile
import time
from types import SimpleNamespace

ROW_GROUP = 100
SHARD = 10_000
LEVEL = 9
TURNS = (3, 6, 9)


class Clock:
    """Seconds that count, and those of all cores together."""

    def __init__(self):
        self.seconds = self.cpu = 0.0

    def __enter__(self):
        self.begun, self.used = time.perf_counter(), sum(os.times()[:4])

    def __exit__(self, *_):
        self.seconds += time.perf_counter() - self.begun
        self.cpu += sum(os.times()[:4]) - self.used


def shards(place):
    return sorted(glob.glob(f"{place}/data/train-*.parquet"))


def texts(place):
    for path in sorted(glob.glob(f"{place}/texts/*.jsonl")):
        with open(path, encoding="utf-8") as lines:
            yield from map(json.loads, lines)


# --- shards ------------------------------------------------------------------------------------


def settings():
    return dict(
        compression="zstd",
        compression_level=LEVEL,
        row_group_size=ROW_GROUP,
        write_page_index=True,
    )


def written(place, clock, write):
    from pyarrow import parquet

    out = tempfile.mkdtemp(dir=place)
    sizes = 0
    for number, path in enumerate(shards(place)):
        table = parquet.read_table(path)
        target = f"{out}/train-{number:05}.parquet"
        write(table, target, clock)
        sizes += os.path.getsize(target)
    shutil.rmtree(out)
    return {"bytes": sizes}


def write_pyarrow(place, clock):
    import pyarrow
    from pyarrow import parquet

    def write(table, path, clock):
        records, schema = table.to_pylist(), table.schema
        with clock:
            made = pyarrow.Table.from_pylist(records, schema=schema)
            parquet.write_table(made, path, **settings())

    return written(place, clock, write)


def write_table(place, clock):
    from pyarrow import parquet

    def write(table, path, clock):
        with clock:
            parquet.write_table(table, path, **settings())

    return written(place, clock, write)


def write_datasets(place, clock):
    import datasets

    datasets.disable_progress_bars()

    def write(table, path, clock):
        # It cannot take numbers of 64 bits without sign from Python's own: the session's seed is left out.
        table = table.drop_columns(["seed"])
        records, features = table.to_pylist(), datasets.Features.from_arrow_schema(table.schema)
        with clock:
            made = datasets.Dataset.from_list(records, features=features)
            # Its compression cannot be chosen.
            made.to_parquet(path, batch_size=ROW_GROUP, use_content_defined_chunking=False)

    return written(place, clock, write)


def counted(records):
    rows = size = 0
    for record in records:
        rows += 1
        size += sum(len(message["content"].encode()) for message in record["messages"])
    return {"rows": rows, "bytes": size}


def read_pyarrow(place, clock):
    from pyarrow import parquet

    def records():
        for path in shards(place):
            for batch in parquet.ParquetFile(path).iter_batches(batch_size=1000):
                yield from batch.to_pylist()

    with clock:
        return counted(records())


def read_table(place, clock):
    from pyarrow import parquet

    with clock:
        return {"rows": sum(len(parquet.read_table(path)) for path in shards(place))}


def opened(place, cache):
    import datasets

    datasets.disable_progress_bars()
    return datasets.Dataset.from_parquet(shards(place), cache_dir=cache)


def read_datasets(place, clock):
    import datasets  # not timed

    with tempfile.TemporaryDirectory(dir=place) as cache, clock:
        return counted(opened(place, cache))


def statistics(place, clock):
    from collections import Counter

    import datasets  # not timed

    with tempfile.TemporaryDirectory(dir=place) as cache, clock:
        columns = ["messages", "category", "keyword", "files"]
        rows = opened(place, cache).select_columns(columns)
        turns, replies, facts, tokens = [0, 0, 0, 0], Counter(), [Counter(), Counter(), Counter()], []
        for row in rows:
            spoken = sum(message["role"] == "assistant" for message in row["messages"])
            turns[sum(spoken > most for most in TURNS)] += 1
            replies[spoken] += 1
            tokens.append(sum(-(-len(message["content"].encode()) // 4) for message in row["messages"]))
            facts[0][row["category"]] += 1
            facts[1][row["keyword"]] += 1
            for kind in {file["kind"] for file in row["files"]}:
                facts[2][kind] += 1
        found = {"rows": len(tokens), "turns": turns, "categories": dict(sorted(facts[0].items()))}
        return found | {"tokens": round(sum(tokens) / len(tokens))}


# --- near duplicates ---------------------------------------------------------------------------

TOKEN = re.compile(r"\w+|[^\w\s]")


def judged(copies, left_out):
    return {
        "copies": len(copies),
        "found": len(copies & left_out),
        "wrongly": len(left_out - copies),
    }


def minhash_datasketch(place, clock):
    from datasketch import MinHash, MinHashLSH

    copies, left_out = set(), set()
    with clock:
        index, kept = MinHashLSH(threshold=0.8, num_perm=128), {}
        for text in texts(place):
            if text["copy"]:
                copies.add(text["id"])
            tokens = TOKEN.findall(text["text"])
            runs = {" ".join(tokens[at : at + 5]).encode() for at in range(max(1, len(tokens) - 4))}
            minima = MinHash(num_perm=128)
            minima.update_batch(runs)
            if any(minima.jaccard(kept[other]) >= 0.8 for other in index.query(minima)):
                left_out.add(text["id"])
            else:
                index.insert(text["id"], minima, check_duplication=False)
                kept[text["id"]] = minima
    return judged(copies, left_out)


def cores():
    return len(os.sched_getaffinity(0))


def pipeline(steps, scratch, tasks):
    from datatrove.executor import LocalPipelineExecutor

    workers = min(tasks, cores())
    logs = tempfile.mkdtemp(dir=scratch)
    return LocalPipelineExecutor(pipeline=steps, tasks=tasks, workers=workers, logging_dir=logs).run()


def minhash_datatrove(place, clock):
    from datatrove.pipeline.dedup.minhash import (
        MinhashConfig,
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers.jsonl import JsonlWriter

    with tempfile.TemporaryDirectory(dir=place) as scratch:
        at = lambda name: f"{scratch}/{name}"
        # As near to 32 bands of 4 as it is usual there: 14 of 8.
        config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8)
        reader = lambda: JsonlReader(f"{place}/texts")
        with clock:
            pipeline([reader(), MinhashDedupSignature(at("signatures"), config=config)], scratch, 2)
            pipeline([MinhashDedupBuckets(at("signatures"), at("buckets"), config=config)], scratch, 14)
            pipeline([MinhashDedupCluster(at("buckets"), at("remove"), config=config)], scratch, 1)
            removed = JsonlWriter(at("removed"), compression=None)
            pipeline([reader(), MinhashDedupFilter(at("remove"), exclusion_writer=removed)], scratch, 2)
        copies = {text["id"] for text in texts(place) if text["copy"]}
        return judged_pairs(copies, ids(at("removed")))


def ids(folder):
    found = set()
    for path in glob.glob(f"{folder}/**/*.jsonl", recursive=True):
        with open(path, encoding="utf-8") as lines:
            found.update(json.loads(line)["id"] for line in lines)
    return found


def judged_pairs(copies, left_out):
    """Which of a pair is kept is not stated there: the original counts as its copy."""
    named = {name if name in copies else str(int(name) + 1) for name in left_out}
    return judged(copies, named)


# --- decontamination ---------------------------------------------------------------------------


def decontaminate(place, clock):
    """Runs of eight words."""
    import numpy
    from datatrove.pipeline.decont import NGramsDecontConfig, NGramsDecontFilter
    from datatrove.pipeline.decont.n_grams import NGramsDecontIndexer
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers.jsonl import JsonlWriter
    from datatrove.utils.hashing import create_hash_func
    from datatrove.utils.text import TextNormConfig
    from datatrove.utils.typeshelper import Languages
    from datatrove.utils.word_tokenizers import load_word_tokenizer

    # With every number as 0, as is usual there, it takes all of these rows for tasks.
    norm = TextNormConfig(norm_numbers=False)
    config = NGramsDecontConfig(n_grams=8, find_query_ngrams=True, norm_config=norm)
    indexer = SimpleNamespace(
        config=config,
        tokenizer=load_word_tokenizer(Languages.english),
        hash_func=create_hash_func(config.hash_config),
    )
    with tempfile.TemporaryDirectory(dir=place) as scratch:
        at = lambda name: f"{scratch}/{name}"
        both = lambda self, data, path, number: {
            "text": data["query"] + "\n" + data["text"],
            "id": data["id"],
            "metadata": {},
        }
        os.mkdir(at("index"))
        with clock:
            # What its indexer does with each task; that one asks for lighteval first.
            hashes = set()
            with open(f"{place}/benchmark/tasks.jsonl", encoding="utf-8") as tasks:
                for task in map(json.loads, tasks):
                    hashes.update(NGramsDecontIndexer.compute_hashes(indexer, task["text"], task["query"]))
            numpy.array(sorted(hashes), dtype=config.hash_config.np_descr).tofile(at("index/bench.index.hashes"))
            removed = JsonlWriter(at("removed"), compression=None)
            step = NGramsDecontFilter(at("index"), config=config, exclusion_writer=removed)
            pipeline([JsonlReader(f"{place}/texts", adapter=both), step], scratch, 2)
        planted = {text["id"] for text in texts(place) if text["planted"]}
        left_out = ids(at("removed"))
        return {
            "planted": len(planted),
            "found": len(planted & left_out),
            "wrongly": len(left_out - planted),
        }


def peak_mib():
    """Of this process; with its workers, that of the largest as often as there are at a time."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return own + (child * cores() if child else 0)


if __name__ == "__main__":
    what, place = sys.argv[1:3]
    try:
        from loguru import logger

        logger.remove()
    except ImportError:
        pass
    os.environ["HF_HUB_OFFLINE"] = "1"
    clock = Clock()
    found = globals()[what](place, clock)
    measured = {"seconds": clock.seconds, "cpu": clock.cpu, "peak_mib": peak_mib(), "found": found}
    print(json.dumps(measured), flush=True)
