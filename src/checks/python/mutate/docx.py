"""Wrong documents: made again from the reference, one thing wrong."""

import copy
import io

from common import reference

from mutate import Mutant


def mutants(spec, names, candidate):
    path, right = spec["path"], reference(names, spec["contains"])
    for name, new in variants(right):
        if new != right:
            yield Mutant(name, {path: make(new)})
    yield Mutant("empty document", {path: make({})})
    yield Mutant("plain text", {path: str(right).encode()})
    data = candidate.bytes(path)
    yield Mutant("truncated", {path: data[: len(data) // 2]})
    if right.get("headings"):
        yield Mutant("headings as plain text", {path: make({**right, "headings": [], "paragraphs": right["headings"] + right.get("paragraphs", [])})})


def variants(right):
    """(name, contents) with one part changed; for every part that the reference holds."""
    for key in ("headings", "paragraphs", "texts"):
        items = right.get(key) or []
        if not items:
            continue
        changes = {
            "first dropped": items[1:], "last dropped": items[:-1], "reversed": items[::-1],
            "first changed": ["~" + items[0][1:], *items[1:]], "last cut": [*items[:-1], items[-1][:-1]],
            "case changed": [t.swapcase() for t in items], "all dropped": [],
        }  # fmt: skip
        for name, new in changes.items():
            if not _contained(items, new):
                yield f"{key}: {name}", {**right, key: new}
    for i, table in enumerate(right.get("tables") or []):
        for name, new in _tables(table):
            if new != table:
                tables = copy.deepcopy(right["tables"])
                tables[i : i + 1] = [] if new is None else [new]
                yield f"table {i + 1}: {name}", {**right, "tables": tables}


def _contained(items, new):
    """The changed list still holds all, in order."""
    rest = iter(new)
    return all(any(item in other for other in rest) for item in items)


def _tables(table):
    yield "dropped", None
    yield "last row dropped", table[:-1]
    yield "a row twice", table + table[-1:]
    yield "rows reversed", table[::-1]
    yield "columns reversed", [row[::-1] for row in table]
    yield "header dropped", table[1:]
    changed = copy.deepcopy(table)
    changed[-1][-1] = f"{changed[-1][-1]}7"
    yield "last cell changed", changed
    changed = copy.deepcopy(table)
    changed[0][0] = f"{changed[0][0]}x"
    yield "first cell changed", changed
    yield "cells emptied", [["" for _ in row] for row in table]


def make(contents):
    """A document of headings, paragraphs and tables."""
    import docx

    document = docx.Document()
    for text in contents.get("headings", []):
        document.add_heading(str(text), 1)
    for text in contents.get("paragraphs", []):
        document.add_paragraph(str(text))
    for rows in contents.get("tables", []):
        if not rows:
            continue
        table = document.add_table(len(rows), len(rows[0]))
        for i, row in enumerate(rows):
            for j, cell in enumerate(row):
                table.cell(i, j).text = str(cell)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()
