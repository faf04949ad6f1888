"""Full-text search with SQLite FTS5 and with tantivy, on the texts of the same rows.

Usage: python full-text.py ROWS.jsonl NUMBER FOLDER     (needs `pip install tantivy`; FOLDER is new)

Both have a field each for users, models and the interpreter, positions, and no texts; both build with one thread. A search
counts all matches and returns the first 100 in the order of the file, as the list of the studio does.
"""

import itertools
import json
import pathlib
import sqlite3
import statistics
import sys
import time
from importlib.metadata import version

import tantivy

ROLES = ("user", "assistant", "tool")
PAGE = 100
REPEATS = 21


def rows(path, number):
    with open(path, encoding="utf-8") as lines:
        for line in itertools.islice(lines, number):
            messages = json.loads(line)["messages"]
            yield tuple("\n".join(m["content"] for m in messages if m["role"] == role) for role in ROLES)


def size(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


class Fts5:
    name = f"SQLite FTS5 {sqlite3.sqlite_version}"

    def __init__(self, folder):
        self.database = sqlite3.connect(folder / "index.sqlite", isolation_level=None)
        self.database.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;"
            "CREATE VIRTUAL TABLE words USING fts5 (user, assistant, tool, content='', tokenize='unicode61');"
        )

    def build(self, texts):
        insert = "INSERT INTO words (rowid, user, assistant, tool) VALUES (?, ?, ?, ?)"
        self.database.execute("BEGIN")
        self.database.executemany(insert, ((number, *text) for number, text in enumerate(texts, 1)))
        self.database.execute("COMMIT")

    def search(self, words):
        of = "FROM words WHERE words MATCH ?"
        (count,) = self.database.execute(f"SELECT count(*) {of}", [f'"{words}"']).fetchone()
        page = self.database.execute(f"SELECT rowid {of} ORDER BY rowid LIMIT {PAGE}", [f'"{words}"'])
        return count, [number for (number,) in page]


class Tantivy:
    name = f"tantivy {version('tantivy')}"

    def __init__(self, folder):
        builder = tantivy.SchemaBuilder().add_integer_field("number", stored=True, fast=True)
        for role in ROLES:
            builder = builder.add_text_field(role, index_option="position")
        self.index = tantivy.Index(builder.build(), path=str(folder))

    def build(self, texts):
        writer = self.index.writer(heap_size=256 << 20, num_threads=1)
        for number, text in enumerate(texts, 1):
            writer.add_document(tantivy.Document(number=number, **dict(zip(ROLES, text))))
        writer.commit()
        writer.wait_merging_threads()
        self.index.reload()
        self.searcher = self.index.searcher()

    def search(self, words):
        query = self.index.parse_query(f'"{words}"', list(ROLES))
        found = self.searcher.search(query, PAGE, count=True, order_by_field="number", order=tantivy.Order.Asc)
        return found.count, [self.searcher.doc(address)["number"][0] for _, address in found.hits]


def measure(kind, texts, searches, folder):
    folder.mkdir(parents=True)
    engine = kind(folder)
    start = time.perf_counter()
    engine.build(texts)
    lines = [("build", f"{time.perf_counter() - start:.1f} s"), ("size", f"{size(folder) / 1e6:.0f} MB")]
    found = []
    for words in searches:
        times = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            result = engine.search(words)
            times.append(time.perf_counter() - start)
        found.append(result)
        lines.append((f"`{words}`, {result[0]:,} rows", f"{statistics.median(times) * 1000:.2f} ms"))
    return lines, found


def main(path, number, folder):
    texts = list(rows(path, int(number)))
    rare = texts[len(texts) // 2][0].split()[7]
    searches = [rare, "mean", "the largest mean is"]
    folder = pathlib.Path(folder)
    (fts5, found), (other, also_found) = (
        measure(kind, texts, searches, folder / kind.__name__) for kind in (Fts5, Tantivy)
    )
    assert found == also_found, "the engines find different rows"
    print(f"| {len(texts):,} rows | {Fts5.name} | {Tantivy.name} |\n| --- | --- | --- |")
    for (name, left), (_, right) in zip(fts5, other):
        print(f"| {name} | {left} | {right} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
